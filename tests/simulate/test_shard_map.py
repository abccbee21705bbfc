"""Loops that begin with what is the same on all devices, within `jax.shard_map` and its check of what varies."""

from __future__ import annotations

import json

import pytest
from devices import printed

SCRIPT = """
from dynax import contact, optimize as o

builder = dx.ModelBuilder()
builder.body("ball", joint=dx.Free(), inertia=dx.SpatialInertia.sphere(0.1, density=1000.0))
ground, ball = contact.Collider("world", contact.Plane()), contact.Collider("ball", contact.Sphere(0.1))
scene = contact.scene(builder.build(), [ground, ball])
rng = np.random.default_rng(0)

def touching(v):
    q = jnp.array([0, 0, 0.1, 1, 0, 0, 0.0])
    return dx.rollout(scene, q, v, jnp.zeros((3, 6)), 0.01).q

def slope(v):
    stepper = dx.simulate.Touching(gradient=dx.simulate.Smoothed(1e-3))
    q, controls = jnp.array([0, 0, 0.1, 1, 0, 0, 0.0]), jnp.zeros((3, 6))
    return jax.grad(lambda v: jnp.sum(dx.rollout(scene, q, v, controls, 0.01, stepper=stepper).q[-1, :3]))(v)

def stepped(way, v):
    return dx.rollout(model, jnp.ones(2), v, jnp.zeros((3, 2)), 0.01, stepper=way).q

def solved(target):
    problem = o.problem(o.plant(model), jnp.zeros(4), 0.01, knots=3, params=target,
                        costs=[o.residual(lambda x, u, p: u)], end_costs=[o.residual(lambda x, p: x - p)])
    return o.solve(problem, jnp.zeros((3, 2)), max_iterations=2).controls

ways = {
    "contact": (touching, 6),
    "relaxed contact": (slope, 6),
    "rk4": (lambda v: stepped("rk4", v), 2),
    "variational": (lambda v: stepped("variational", v), 2),
    "solver": (solved, 4),
}
mesh = Mesh(np.array(jax.devices()), ("batch",))
errors = {}
for name, (way, size) in ways.items():
    given = rng.normal(size=(4, size))
    over = PartitionSpec("batch")
    split = jax.jit(jax.shard_map(jax.vmap(way), mesh=mesh, in_specs=over, out_specs=over))(given)
    one = jax.jit(jax.vmap(way))(given)
    errors[name] = float(np.abs(np.asarray(split) - one).max() / np.abs(one).max())
print(json.dumps([jax.device_count(), errors]))
"""


@pytest.mark.slow
def test_loops_begin_where_devices_do(tmp_path):
    devices, errors = json.loads(printed(2, SCRIPT, folder=tmp_path, timeout=900))
    assert devices == 2
    assert set(errors) == {"contact", "relaxed contact", "rk4", "variational", "solver"}
    assert max(errors.values()) < 1e-12, errors

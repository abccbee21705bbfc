"""Loops that begin with what is the same on all devices, within `jax.shard_map` and its check of what varies."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

# A fresh process, because the number of devices is fixed when JAX starts, and the other tests have one.
SCRIPT = """
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

import dynax as dx
from dynax import contact, optimize as o

jax.config.update("jax_enable_x64", True)
builder, hinge = dx.ModelBuilder(), dx.Revolute((0.0, 1.0, 0.0))
rod = dx.SpatialInertia(1.0, (0.1, 0.0, 0.2), (0.1, 0.2, 0.15))
builder.body("upper", joint=hinge, inertia=rod)
builder.body("lower", parent="upper", joint=hinge, placement=dx.Transform(np.eye(3), (0.0, 0.0, 0.5)), inertia=rod)
pendulum = builder.build()
builder = dx.ModelBuilder()
builder.body("ball", joint=dx.Free(), inertia=dx.SpatialInertia.sphere(0.1, density=1000.0))
ground, ball = contact.Collider("world", contact.Plane()), contact.Collider("ball", contact.Sphere(0.1))
scene = contact.scene(builder.build(), [ground, ball])
rng = np.random.default_rng(0)

def touching(v):
    q = jnp.array([0, 0, 0.1, 1, 0, 0, 0.0])
    return dx.rollout(scene, q, v, jnp.zeros((3, 6)), 0.01).q

def stepped(way, v):
    return dx.rollout(pendulum, jnp.ones(2), v, jnp.zeros((3, 2)), 0.01, stepper=way).q

def solved(target):
    problem = o.problem(o.plant(pendulum), jnp.zeros(4), 0.01, knots=3, params=target,
                        costs=[o.residual(lambda x, u, p: u)], end_costs=[o.residual(lambda x, p: x - p)])
    return o.solve(problem, jnp.zeros((3, 2)), max_iterations=2).controls

ways = {
    "contact": (touching, 6),
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
def test_loops_begin_where_devices_do():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment |= {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    environment["XLA_FLAGS"] = f"{environment.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    command = [sys.executable, "-W", "error", "-c", SCRIPT]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert run.returncode == 0, run.stderr
    devices, errors = json.loads(run.stdout)
    assert devices == 2
    assert len(errors) == 4
    assert max(errors.values()) < 1e-12, errors

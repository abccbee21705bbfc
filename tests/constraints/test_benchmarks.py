"""Benchmarks with digits: Andrews' squeezer, the N-four-bar and Bricard's ring, each on its own clock."""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constraints import mechanisms

import dynax as dx
from dynax.constraints.dynamics import METHODS

STEPS = 5000
G = 9.81
DURATION = {"andrews": 0.03, "bars": 10.0, "ring": 5.0}


@lru_cache
def world():
    """The three mechanisms in one model, the squeezer flat on the ground so that gravity does nothing to it."""
    squeezer, ring, bars = mechanisms.andrews(), mechanisms.bricard(), mechanisms.n_four_bar(2)
    flat = dx.Transform(np.asarray(dx.Rotation.from_axis_angle((1, 0, 0), np.pi / 2).matrix), np.zeros(3))
    model = dx.attach(ring.model, squeezer.model, prefix="andrews_", placement=flat)
    model = dx.attach(model, bars.model, prefix="bars_")
    q = np.concatenate([ring.q, squeezer.q, bars.q])
    embedded = dx.embed(model, q, independent=["andrews_k1_joint", "bars_upright0_joint"])
    parts = {"ring": slice(0, 5), "andrews": slice(5, 12), "bars": slice(12, 17)}
    return squeezer, model, embedded, q, parts


def squeezed(squeezer, model, q):
    """Wrenches on the bodies: the motor's moment on the first, the spring's on the third."""
    angle = q[7]
    c, s = jnp.cos(angle), jnp.sin(angle)
    (x, y), (stiffness, rest) = squeezer.moving, squeezer.spring
    arm = jnp.stack([c * x - s * y, s * x + c * y])
    reach = squeezer.pivot + arm - squeezer.fixed
    length = jnp.sqrt(reach @ reach)
    force = -stiffness * (length - rest) / length * reach
    moment = arm[0] * force[1] - arm[1] * force[0]
    external = jnp.zeros((model.num_bodies, 6))
    bodies = [model.body_index(f"andrews_{name}") for name in ("k1", "k3")]
    return external.at[jnp.array(bodies), 2].set(jnp.stack([jnp.asarray(squeezer.torque), moment]))


@lru_cache
def motion():
    """Runge-Kutta's method of order 4 in the independent coordinates; a scan over stages, so that it compiles once."""
    squeezer, model, embedded, q, parts = world()
    of = {j: name for name, part in parts.items() for j in range(part.start, part.stop)}
    dt = jnp.array([DURATION[of[j]] / STEPS for j in embedded.independent])
    start = jnp.array([-1.0 if of[j] == "bars" else 0.0 for j in embedded.independent])

    @jax.jit
    def run(embedded, q, v):
        nodes = jnp.array([0.5, 0.5, 1.0, 0.0]), jnp.array([1.0, 2.0, 2.0, 1.0]) / 6.0, jnp.arange(4) == 3

        def step(state, _):
            q0, v0 = state

            def stage(carry, x):
                (q, v, by_v, by_a), (node, weight, last) = carry, x
                a = dx.forward_dynamics(embedded, q, v, jnp.zeros_like(v), squeezed(squeezer, model, q))
                by_v, by_a = by_v + weight * v, by_a + weight * a
                along, push = jnp.where(last, by_v, node * v), jnp.where(last, by_a, node * a)
                return (dx.integrate(embedded, q0, dt * along), v0 + dt * push, by_v, by_a), None

            zero = jnp.zeros_like(v0)
            q, v, *_ = jax.lax.scan(stage, (q0, v0, zero, zero), nodes)[0]
            return (q, v), (q, v)

        return jax.lax.scan(step, (q, v), length=STEPS)[1]

    qs, vs = run(embedded, jnp.asarray(q), start)
    return np.concatenate([q[None], qs]), np.concatenate([start[None], vs])


def at_time(name: str, t: float) -> int:
    index = t / DURATION[name] * STEPS
    assert abs(index - round(index)) < 1e-6
    return round(index)


@jax.jit
def at_rest(embedded, q, external):
    still = jnp.zeros(embedded.nv)
    return (
        dx.embedding_matrix(embedded, q),
        dx.mass_matrix(embedded, q),
        dx.forward_dynamics(embedded, q, still, still, external),
        dx.constrained_dynamics(embedded.tree, q, *(jnp.zeros(embedded.tree.nv),) * 2, external),
    )


@pytest.mark.spec("B-AND", "EMBED-LAMBDA-REC", "EMBED-MULTI")
def test_andrews_squeezer_at_the_start():
    squeezer, model, embedded, q, parts = world()
    x, mass, a, found = at_rest(embedded, q, squeezed(squeezer, model, jnp.asarray(q)))
    own = [j in range(parts["andrews"].start, parts["andrews"].stop) for j in embedded.independent].index(True)
    x = np.asarray(x)[parts["andrews"], own][squeezer.order]
    np.testing.assert_allclose(x, [1.0, -0.75, 0.0, 0.0, 0.0, 0.0, 0.0], atol=1e-11)
    np.testing.assert_allclose(mass[own, own], 2.32027633125e-6, rtol=1e-11)
    np.testing.assert_allclose(a[own], 14222.4439199541, rtol=1e-11)
    np.testing.assert_allclose(found.a[np.array(embedded.independent)][own], 14222.4439199541, rtol=1e-8)
    # The reactions at the point where all meet, in the axes of the third body: the first loop's last two in its plane.
    rows = dx.constraint_names(model)
    local = np.asarray(found.multipliers)[rows["andrews_k3"]][-3:]
    across, plane = np.argmin(np.abs(local)), np.delete(np.arange(3), np.argmin(np.abs(local)))
    assert abs(local[across]) < 1e-7
    angle = squeezer.q[2]
    turned = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]) @ local[plane]
    np.testing.assert_allclose(np.abs(turned), [98.5668703962411, 6.12268834425567], rtol=1e-8)
    assert turned[0] * turned[1] < 0.0
    for other in ("andrews_k4", "andrews_k6"):
        np.testing.assert_allclose(found.multipliers[rows[other]], 0.0, atol=1e-6)


@pytest.mark.spec("B-AND", "EMBED-RANK")
def test_andrews_squeezer_in_motion():
    squeezer, _, embedded, _, parts = world()
    qs, _ = motion()
    expected = [
        15.81077119629904, -15.75637105984298, 0.04082224013073101, -0.5347301163226948, 0.5244099658805304,
        0.5347301163226948, 1.048080741042263,
    ]  # fmt: skip
    np.testing.assert_allclose(qs[-1][parts["andrews"]][squeezer.order], expected, atol=1e-7)
    quality = jax.jit(jax.vmap(lambda q: dx.embedding_quality(embedded, q)))(qs[::5])
    own = [names[0].startswith("andrews") for names in embedded.aggregates].index(True)
    np.testing.assert_allclose(np.min(quality.dependent[:, own]), 0.01311, atol=2e-5)
    np.testing.assert_allclose(np.min(quality.conditions[:, own]), 0.01433, atol=2e-5)
    assert np.max(quality.error) < 1e-11


@jax.jit
def by_all_methods(embedded, q, v, external):
    """Accelerations of the independent joints, embedded and by the methods that solve for the forces as well."""
    tree, independent = embedded.tree, jnp.array(embedded.independent)
    whole, none = dx.embedding_matrix(embedded, q) @ v, jnp.zeros(embedded.tree.nv)
    solved = [dx.constrained_dynamics(tree, q, whole, none, external, method=m).a[independent] for m in METHODS]
    return jnp.stack([dx.forward_dynamics(embedded, q, v, jnp.zeros_like(v), external), *solved])


@pytest.mark.spec("B-AND", "B-4N", "B-BRI", "EMBED-LIMIT")
@pytest.mark.parametrize("k", [20, 70])
def test_all_methods_agree(k):
    """In motion, each mechanism by its own measure."""
    squeezer, model, embedded, _, _ = world()
    qs, vs = motion()
    found = by_all_methods(embedded, qs[k], vs[k], squeezed(squeezer, model, jnp.asarray(qs[k])))
    assert np.abs(vs[k]).min() > 0.01
    assert np.abs(found[0]).min() > 0.01
    np.testing.assert_allclose(found[1:], np.broadcast_to(found[0], found[1:].shape), rtol=1e-9)


@pytest.mark.spec("B-4N", "ERR-18")
def test_n_four_bar():
    """Ten seconds through the poses where the mobility jumps, against the single pendulum that it is."""
    _, _, embedded, _, parts = world()
    qs, vs = motion()
    own = parts["bars"]
    for t, tip in (
        (1, (-0.1950203020, -0.9807992057)),
        (2, (0.0578157958, 0.9983272679)),
        (5, (-0.8113104610, -0.5846155454)),
        (10, (0.3284581115, 0.9445185382)),
    ):
        angle = -qs[at_time("bars", t)][own.start]
        np.testing.assert_allclose([np.sin(angle), np.cos(angle)], tip, atol=1e-6)
    rate = -vs[-1][[j in range(own.start, own.stop) for j in embedded.independent].index(True)]
    np.testing.assert_allclose(
        rate * np.array([np.cos(angle), -np.sin(angle)]), [1.4230514702, -0.4948688455], atol=5e-6
    )
    # The squares stay squares.
    bars = qs[:, own]
    np.testing.assert_allclose(bars[:, 1:3], np.repeat(bars[:, :1], 2, 1), atol=1e-7)
    np.testing.assert_allclose(bars[:, 3:], -np.repeat(bars[:, :1], 2, 1), atol=1e-7)


@pytest.mark.spec("B-BRI", "CC-SING")
def test_bricard_ring():
    _, model, embedded, q, parts = world()
    qs, vs = motion()
    k = np.asarray(dx.constraint_jacobian(model, q))[dx.constraint_names(model)["close"], parts["ring"]]
    values = np.linalg.svd(k, compute_uv=False)
    np.testing.assert_allclose(values, [1.90211303, 1.90211303, 1.17557050, 1.17557050, 0.0], atol=1e-8)
    np.testing.assert_allclose(k @ [-1, 1, -1, 1, -1], 0.0, atol=1e-12)
    times = (0.5, 1.0, 2.0, 5.0)
    place = jax.jit(jax.vmap(lambda q: dx.frame_pose(model, q, "P3").translation))
    found = place(qs[[at_time("ring", t) for t in times]])
    expected = [
        (0.96828368, -1.22462516, 0.75014661),
        (0.51050146, -1.6491676, 0.14012311),
        (-0.96934034, -1.22124689, 0.75427801),
    ]
    np.testing.assert_allclose(found[:3], expected, atol=2e-7)
    assert np.abs(np.asarray(found[3]) - [1.0, -1.0, 1.0]).max() < 7e-5
    mask = jnp.asarray([not name.startswith(("andrews", "bars")) for name in model.body_names], float)
    alone = embedded.replace(mass=model.mass * mask, inertia=model.inertia * mask[:, None])
    energy = jax.jit(jax.vmap(lambda q, v: dx.kinetic_energy(alone, q, v) + dx.potential_energy(alone, q)))
    values = np.asarray(energy(qs[::50], vs[::50]))
    assert np.abs(values - values[0]).max() < 1e-10 * 5 * G

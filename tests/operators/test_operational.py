"""Dynamics in the operational space: what is asked of frames happens, and what they cannot do is said."""

from __future__ import annotations

from functools import lru_cache, partial

import dense
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees
from operators.frames import textbook

import dynax as dx

JOINTS = [(-1, dx.Universal()), (0, dx.Spherical()), (1, dx.Cylindrical()), (0, dx.Translation()), (3, dx.Spherical())]
TASKS = {"joints": ("tool", "b2"), "screws": ("b7", "b5"), "arm": ("tool", "b3", "mark")}
"""Two branches that move freely; on the other trees more ways than there are joints."""
KINDS = {"joints": "body", "screws": "world_aligned", "arm": "world"}


def close(actual, expected, tolerance=1e-10):
    scale = max(1.0, np.abs(expected).max(initial=0.0))
    np.testing.assert_allclose(np.asarray(actual) / scale, np.asarray(expected) / scale, rtol=0, atol=tolerance)


@lru_cache
def case(name):
    """Two states, the operational space at them, and what it is made of from the textbook."""
    model = trees.build(JOINTS, passive=False) if name == "joints" else trees.tree(name, passive=False)
    task, frame = TASKS[name], KINDS[name]
    s = trees.states(model, 2)
    space = jax.jit(jax.vmap(lambda q, v: dx.operational_space(model, q, task, frame=frame, v=v)))
    d = dense.Dense(model, s.q, s.v)
    still = np.zeros_like(s.v)
    known = *textbook(d, task, frame), np.linalg.inv(d.mass_matrix), d.tau(still, 0.0 * s.external)
    return model, s, jax.tree.map(np.asarray, space(s.q, s.v)), known


def t(a):
    return np.swapaxes(a, -1, -2)


@pytest.mark.spec("OSC", "LAMBDA", "RBDA-7.2.1-PROJ")
@pytest.mark.parametrize("name", TASKS)
def test_definitions(name):
    """Also where the task is more than the robot can do: all of it then holds for what the frames can do."""
    model, _, o, (j, rate, inverse, bias) = case(name)
    lam = j @ inverse @ t(j)
    close(o.jacobian, j, 1e-12)
    close(o.compliance, lam, 1e-12)
    ranks = np.linalg.matrix_rank(lam, tol=1e-10 * np.abs(lam).max(), hermitian=True)
    assert np.array_equal(o.rank, ranks)
    assert (ranks == 12).all() if name == "joints" else (ranks < lam.shape[1]).all()
    close(o.singular_values, np.linalg.svd(lam)[1], 1e-12)
    close(o.inertia, np.linalg.pinv(lam, rcond=1e-11, hermitian=True))
    close(o.inertia, t(o.inertia), 0.0)
    close(o.inverse, inverse @ t(j) @ o.inertia)
    close(o.null_space, np.eye(model.nv) - t(j) @ t(o.inverse))
    close(o.null_space @ o.null_space, o.null_space)
    close(j @ inverse @ o.null_space, 0 * j)
    # The projector on what the frames can do leaves their velocities and accelerations as they are.
    able = o.jacobian @ o.inverse
    close(able @ j, j)
    close(able @ able, able)
    close(t(o.inertia @ lam), able)  # Lambda^-1 and Lambda have the same range and the same null space
    b = rate - dense.mul(j @ inverse, bias)
    close(o.bias, -dense.mul(o.inertia, b))


@pytest.mark.spec("OSC", "SOA-ALPHAF", "ERR-5")
def test_motors_do_what_the_task_asks(rng):
    """`J^T F + N tau` gives the frames the acceleration asked for, whatever `tau`."""
    model, s, o, (_, rate, inverse, _) = case("screws")
    wanted = dense.mul(o.jacobian, rng.normal(size=(2, model.nv))) + rate
    force = dense.mul(o.inertia, wanted) + o.bias

    @jax.jit
    @jax.vmap
    def moved(q, v, tau):
        torque = tau - dx.bias_force(model, q, v)
        return torque, dx.free_accelerations(model, q, torque, TASKS["screws"], frame=KINDS["screws"])

    for _ in range(2):
        tau = dense.mul(t(o.jacobian), force) + dense.mul(o.null_space, 5.0 * rng.normal(size=(2, model.nv)))
        torque, free = (np.asarray(x) for x in moved(s.q, s.v, jnp.asarray(tau)))
        close(dense.mul(o.jacobian, dense.mul(inverse, torque)), free.reshape(2, -1), 1e-12)
        close(free.reshape(2, -1) + rate, wanted)  # Jdot v once


@pytest.mark.spec("RBDA-7.1-MULTI", "RBDA-7.2.1-PROJ")
def test_handles_probed_by_forces(rng):
    """`a = Phi f + b` of three handles at once, `Phi` column by column; invertible, its inverse and `p` with it."""
    axes = np.random.default_rng(1).normal(size=(6, 3))
    model = trees.build([(-1, dx.Free()), *((k, dx.Revolute(a)) for k, a in enumerate(axes)), (-1, dx.Free())])
    s, handles = trees.states(model, 1), np.array([0, 6, 7])
    q, v = s.q[0], s.v[0]

    @jax.jit
    @jax.vmap
    def felt(f):
        external = jnp.zeros((model.num_bodies, 6)).at[handles].set(f.reshape(-1, 6))
        a = dx.forward_dynamics(model, q, v, 0.0 * v, external)
        return dx.body_accelerations(model, q, v, a)[handles].reshape(-1)

    f = np.concatenate([np.zeros((1, 18)), np.eye(18), rng.normal(size=(1, 18))])
    a = np.asarray(felt(jnp.asarray(f)))
    phi, b = t(a[1:19] - a[0]), a[0]
    o = dx.operational_space(model, q, ["b0", "b6", "b7"], frame="body", v=v)
    close(o.compliance, phi)
    close(phi, phi.T)
    assert o.rank == 18
    assert np.abs(phi[:6, 6:12]).max() > 0.01  # two handles of one tree feel each other,
    assert not np.any(np.asarray(o.compliance)[:12, 12:])  # those of different trees do not
    close(-o.compliance @ o.bias, b)
    close(o.inertia @ a[-1] + o.bias, f[-1], 1e-9)  # f = I a + p


def chain(count=3):
    """A planar chain of unit links: stretched out it loses a freedom of its tip."""
    builder = dx.ModelBuilder()
    for k in range(count):
        builder.body(
            f"link{k}",
            parent=f"link{k - 1}" if k else "world",
            joint=dx.Revolute(),
            placement=dx.Transform.from_translation((1.0 if k else 0.0, 0.0, 0.0)),
            inertia=dx.SpatialInertia(1.0 + k, (0.5, 0.1, 0.0), 0.1 * np.eye(3)),
        )
    tip = dx.Transform.from_translation((1.0, 0.0, 0.0))
    return builder.frame("tip", body=f"link{count - 1}", placement=tip).build()


def test_derivatives_without_full_rank(rng):
    """Those at the rank that is found, finite where it is lost."""
    model = chain()
    v, weight = jnp.asarray(rng.normal(size=3)), jnp.asarray(rng.normal(size=(6, 6)))

    def value(q):
        o = dx.operational_space(model, q, "tip", frame="body", v=v)
        every = jnp.sum(weight * o.inertia) + weight[0] @ o.bias + jnp.sum(weight[:3, :3] * o.null_space)
        return every + jnp.sum(weight[:, :3] * o.inverse.T), (o.rank, every)

    slope = jax.jit(jax.value_and_grad(value, has_aux=True))
    q, dq, h = jnp.array([0.3, 0.8, -1.1]), jnp.asarray(rng.normal(size=3)), 1e-3
    (_, (rank, _)), found = slope(q)
    assert rank == 3
    at = {k: slope(q + k * h * dq)[0][0] for k in (-2, -1, 1, 2)}
    close(found @ dq, (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / (12 * h), 1e-8)
    (_, (rank, every)), found = slope(jnp.zeros(3))
    assert rank == 2
    assert np.isfinite(every)
    assert np.isfinite(found).all()


def test_damping_and_tolerance():
    model, q = chain(), jnp.array([0.2, 1e-4, -1e-4])  # almost stretched out

    @partial(jax.jit, static_argnames="tolerance")
    def space(damping, tolerance=None):
        options = {"damping": damping, "tolerance": tolerance}
        return dx.operational_space(model, q, ["tip", "tip"], frame="world_aligned", **options)

    plain, damped, coarse = space(0.0), space(0.01), space(0.0, tolerance=1e-6)
    assert plain.rank == damped.rank == 3
    assert coarse.rank == 2
    close(damped.singular_values, plain.singular_values, 1e-14)
    close(damped.inertia, np.linalg.inv(plain.compliance + 0.01 * np.eye(12)), 1e-12)
    assert np.abs(plain.inertia).max() > 1e5
    assert np.abs(coarse.inertia).max() < 1e2
    assert np.abs(damped.inertia).max() <= 100.0 * (1.0 + 1e-14)
    assert plain.bias is None


def test_names():
    model = chain(1)
    with pytest.raises(KeyError, match="did you mean"):
        dx.operational_space(model, [0.0], "tp", frame="body")
    for function in (dx.operational_space, partial(dx.free_accelerations, tau=[0.0])):
        with pytest.raises(ValueError, match="`frame` must be"):
            function(model, q=[0.0], frames="tip", frame="tool")

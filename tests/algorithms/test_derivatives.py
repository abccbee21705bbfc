"""Closed-form derivatives of dynamics: against differences for every joint, Pinocchio, and as the rule of autodiff."""

from __future__ import annotations

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees
from oracles.robots import PinocchioState, example_robots, frictionless, random_states

import dynax as dx
from dynax.algorithms.aba import aba, solved
from dynax.algorithms.factor import response
from dynax.derivatives.adjoint import LOCAL, Weights, adjoint

pin = pytest.importorskip("pinocchio")

# Not optimised: each program here runs once.
QUICK = {"xla_backend_optimization_level": 0}
SMALL = ((-1, dx.Revolute((0.0, 1.0, 0.3))), (0, dx.Prismatic((1.0, 0.0, 1.0))), (0, dx.Spherical()))
STEP = 1e-3


def close(actual, expected, tolerance):
    scale = np.max(np.abs(expected))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


def differences(f, n, h=STEP):
    """Columns `df/dx_j` of a function of a displacement `x` of shape `(n,)`, for a batch of functions."""
    units = np.eye(n)
    ahead, behind, far, back = (np.stack([f(k * h * u) for u in units], axis=-1) for k in (1, -1, 2, -2))
    return (8.0 * (ahead - behind) - (far - back)) / (12.0 * h)


@lru_cache
def programs(name):
    model = trees.tree(name)
    f = jax.jit(jax.vmap(partial(dx.inverse_dynamics, model)), compiler_options=QUICK)
    d = jax.jit(jax.vmap(partial(dx.inverse_dynamics_derivatives, model)), compiler_options=QUICK)
    return model, f, d


@pytest.mark.spec("RBDA-5.5-DERIV", "RBDA-X-GRAD")
@pytest.mark.parametrize("name", trees.TREES)
def test_inverse_dynamics_against_differences(name):
    model, f, d = programs(name)
    s = trees.states(model, 2)
    found = d(s.q, s.v, s.a, s.external)
    move = jax.jit(jax.vmap(partial(dx.integrate, model), (0, None)))
    by_q = differences(lambda x: f(move(s.q, x), s.v, s.a, s.external), model.nv)
    by_v = differences(lambda x: f(s.q, s.v + x, s.a, s.external), model.nv)
    close(found.q, by_q, 1e-10)
    close(found.v, by_v, 1e-10)
    close(found.a, jax.vmap(partial(dx.mass_matrix, model))(s.q), 1e-13)


@pytest.mark.spec("RBDA-5.5-DERIV")
@pytest.mark.parametrize("name", trees.TREES)
def test_one_inward_walk_is_the_transpose(name, rng):
    """What reverse mode runs: `J^T w` for the `w` that solves `M w = c`, batch axes last."""
    model, _, d = programs(name)
    s = trees.states(model, 2)
    c = rng.normal(size=s.v.shape)

    def transposed(q, v, tau, external, c):
        x = solved(model, q, v, tau, external)
        rates, motions = response(x.factor, c[:, None])
        weights = Weights(rates[:, 0], jax.tree.map(lambda x: x[:, 0], motions))
        return x.a, weights.freedoms, *adjoint(model, x.setup, x.kin, x.inertias, q, v, x.a, external, weights)

    last = [np.moveaxis(x, 0, -1) for x in (s.q, s.v, s.tau, s.external, c)]
    a, w, by_q, by_v = (np.moveaxis(x, -1, 0) for x in jax.jit(transposed, compiler_options=QUICK)(*last))
    expected = d(s.q, s.v, a, s.external)
    close(np.einsum("sij,sj->si", expected.a, w), c, 1e-11)
    close(by_q, np.einsum("sij,si->sj", expected.q, w), 1e-12)
    close(by_v, np.einsum("sij,si->sj", expected.v, w), 1e-12)


@pytest.mark.parametrize("name", ["arm", "screws"])
def test_forward_dynamics_is_the_inverse_problem(name):
    """Up to a dozen freedoms by the dense inverse, above by the factor."""
    model, _, d = programs(name)
    s = trees.states(model, 2)
    f = jax.jit(jax.vmap(partial(dx.forward_dynamics_derivatives, model)), compiler_options=QUICK)
    found = f(s.q, s.v, s.tau, s.external)
    a = jax.vmap(partial(dx.forward_dynamics, model))(s.q, s.v, s.tau, s.external)
    inverse = d(s.q, s.v, a, s.external)
    close(found.tau @ inverse.a, np.broadcast_to(np.eye(model.nv), inverse.a.shape), 1e-11)
    close(inverse.a @ found.q, -np.asarray(inverse.q), 1e-11)
    close(inverse.a @ found.v, -np.asarray(inverse.v), 1e-11)


@pytest.mark.spec("RBDA-5.5-DERIV")
@pytest.mark.parametrize(
    ("file", "root"), [("panda_description/urdf/panda.urdf", "fixed"), ("solo_description/robots/solo12.urdf", "free")]
)
def test_against_pinocchio(file, root):
    model = frictionless(dx.load(example_robots()[file], root=root))
    flyer = (pin.JointModelFreeFlyer(),) if root == "free" else ()
    theirs = pin.buildModelFromUrdf(str(example_robots()[file]), *flyer)
    data, convert, rng = theirs.createData(), PinocchioState(model, theirs), np.random.default_rng(3)
    q, v = random_states(model, rng, 3)
    a, tau = rng.normal(size=(2, 3, model.nv))
    inverse = jax.jit(jax.vmap(partial(dx.inverse_dynamics_derivatives, model)), compiler_options=QUICK)(q, v, a)
    forward = jax.jit(jax.vmap(partial(dx.forward_dynamics_derivatives, model)), compiler_options=QUICK)(q, v, tau)
    for k in range(3):
        x, y = convert.q(q[k]), convert.v(v[k])
        by_q, by_v, mass = pin.computeRNEADerivatives(theirs, data, x, y, convert.v(a[k]))
        mass = np.triu(mass) + np.triu(mass, 1).T
        for mine, other in ((inverse.q, by_q), (inverse.v, by_v), (inverse.a, mass)):
            close(mine[k], convert.back_matrix(other), 1e-12)
        by_q, by_v, inv = pin.computeABADerivatives(theirs, data, x, y, convert.v(tau[k]))
        inv = np.triu(inv) + np.triu(inv, 1).T
        for mine, other in ((forward.q, by_q), (forward.v, by_v), (forward.tau, inv)):
            close(mine[k], convert.back_matrix(other), 1e-10)


def value(forward_dynamics, model, dq, v, tau, external, q):
    """One number of an acceleration, with a slope and a curvature in everything."""
    weights = jnp.asarray(np.random.default_rng(5).normal(size=model.nv))
    return weights @ jnp.sin(forward_dynamics(model, dx.integrate(model, q, dq), v, tau, external))


@lru_cache
def small():
    model = trees.build(SMALL, 11)
    s = trees.states(model, 3)
    return model, s


@pytest.mark.spec("RBDA-X-GRAD")
def test_rule_agrees_with_differences():
    """State, forces, wrenches and every leaf of the model, two directions each: differences of the recursion."""
    model, s = small()
    point = (model, jnp.zeros(model.nv), s.v[0], s.tau[0], s.external[0])
    by_rule = jax.jit(jax.grad(partial(value, dx.forward_dynamics), argnums=range(5)), compiler_options=QUICK)
    found = jax.tree_util.tree_leaves_with_path(by_rule(*point, s.q[0]))
    rng, leaves = np.random.default_rng(4), jax.tree.leaves(point)
    directions = [np.zeros((2 * len(leaves), *np.shape(leaf))) for leaf in leaves]
    for k, own in enumerate(directions):
        own[2 * k : 2 * k + 2] = rng.normal(size=own[:2].shape)
        own[2 * k : 2 * k + 2] /= max(1.0, np.sqrt(own[0].size))
    at = [np.concatenate([leaf + step * STEP * d for step in (1, -1, 2, -2)])
          for leaf, d in zip(leaves, directions, strict=True)]  # fmt: skip
    every = jax.jit(jax.vmap(lambda x: value(aba, *x, s.q[0])), compiler_options=QUICK)
    f = np.reshape(every(jax.tree.unflatten(jax.tree.structure(point), at)), (4, len(leaves), 2))
    expected = (8.0 * (f[0] - f[1]) - (f[2] - f[3])) / (12.0 * STEP)
    for k, (path, gradient) in enumerate(found):
        along = np.tensordot(directions[k][2 * k : 2 * k + 2], gradient, np.ndim(gradient))
        size = 1.0 + np.max(np.abs(gradient), initial=0.0)
        np.testing.assert_allclose(along, expected[k], rtol=0, atol=1e-8 * size, err_msg=jax.tree_util.keystr(path))


@pytest.mark.slow
@pytest.mark.spec("RBDA-X-GRAD")
def test_rule_is_the_derivative_of_the_recursion():
    """State, forces, wrenches and every leaf of the model, placements as the recursion reads them."""
    model, s = small()
    point = (model, jnp.zeros(model.nv), s.v[0], s.tau[0], s.external[0])
    by_rule, plain = (
        jax.jit(jax.grad(partial(value, f), argnums=range(5)), compiler_options=QUICK)(*point, s.q[0])
        for f in (dx.forward_dynamics, aba)
    )
    for (path, ours), expected in zip(
        jax.tree_util.tree_leaves_with_path(by_rule), jax.tree.leaves(plain), strict=True
    ):
        np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=1e-11, err_msg=jax.tree_util.keystr(path))


@pytest.mark.spec("RBDA-X-GRAD")
def test_leaves_that_move_nothing_need_no_walk():
    """The gradient by them and the wrenches alone, which is found body by body, is that of the recursion."""
    model, s = small()
    leaves = {name: getattr(model, name) for name in sorted(LOCAL)}

    def of_leaves(f, leaves, external):
        return value(f, model.replace(**leaves), jnp.zeros(model.nv), s.v[0], s.tau[0], external, s.q[0])

    by_rule, plain = (
        jax.jit(jax.grad(partial(of_leaves, f), argnums=(0, 1)), compiler_options=QUICK)(leaves, s.external[0])
        for f in (dx.forward_dynamics, aba)
    )
    for ours, expected in zip(jax.tree.leaves(by_rule), jax.tree.leaves(plain), strict=True):
        assert np.any(expected)
        np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=1e-11)


@pytest.mark.slow
@pytest.mark.spec("RBDA-X-GRAD", "RBDA-X-BATCH")
def test_rule_in_every_composition():
    model, s = small()
    found = jax.vmap(partial(dx.forward_dynamics_derivatives, model))(s.q, s.v, s.tau)
    f = partial(dx.forward_dynamics, model)
    for mode in (jax.jacfwd, jax.jacrev):
        by_v, by_tau = jax.jit(jax.vmap(mode(f, argnums=(1, 2))), compiler_options=QUICK)(s.q, s.v, s.tau)
        close(by_v, found.v, 1e-12)
        close(by_tau, found.tau, 1e-12)
    # One state, batches of batches, a gradient of a batch, and one direction alone.
    np.testing.assert_allclose(jax.jit(jax.jacrev(f, argnums=2))(s.q[0], s.v[0], s.tau[0]), found.tau[0], rtol=1e-10)
    twice = jax.vmap(jax.vmap(jax.grad(lambda q, v, tau: jnp.sum(f(q, v, tau)), argnums=1), (0, 0, 0)), (None, 0, None))
    both = jax.jit(twice, compiler_options=QUICK)(s.q, jnp.stack([s.v, s.v]), s.tau)
    close(both, np.stack([np.sum(found.v, axis=1)] * 2), 1e-12)
    total = jax.jit(jax.grad(lambda tau: jnp.sum(jax.vmap(f)(s.q, s.v, tau))), compiler_options=QUICK)(s.tau)
    close(total, np.sum(found.tau, axis=1), 1e-12)
    rate = jax.jit(lambda v, dv: jax.jvp(lambda v: f(s.q[0], v, s.tau[0]), (v,), (dv,))[1])(s.v[0], s.a[0])
    close(rate, found.v[0] @ s.a[0], 1e-12)


@pytest.mark.slow
@pytest.mark.spec("RBDA-X-GRAD")
def test_second_derivatives_mixed_in_state_and_leaves():
    """The rate of every first derivative as state and model move together, poses along their manifold."""
    model, s = small()
    rng = np.random.default_rng(8)
    names = ("gravity", "mass", "com", "first_moment", "inertia", "armature", "damping", "stiffness", "friction_loss")
    direction = {k: jnp.asarray(0.3 * rng.normal(size=getattr(model, k).shape)) for k in names}
    turns = {k: jnp.asarray(rng.normal(size=(model.num_bodies, 3))) for k in ("placements", "hinges")}
    moves = {k: jnp.asarray(rng.normal(size=(model.num_bodies, 3))) for k in turns}

    def at(t):
        """The point at `t`, the model's poses turned by `exp`."""
        changes = {k: getattr(model, k) + t * direction[k] for k in names}
        for k, turn in turns.items():
            pose = getattr(model, k)
            rotation = pose.rotation @ jax.vmap(lambda w: dx.Rotation.exp(w).matrix)(t * turn)
            changes[k] = dx.Transform(rotation, pose.translation + t * moves[k])
        q = dx.integrate(model, s.q[0], t * s.a[0])
        return model.replace(**changes), q, s.v[0] + t * s.a[1], s.tau[0] + t * s.a[2]

    def first(t):
        """Gradients at `t` with respect to state and leaves, those of poses in their tangent spaces."""
        model, q, v, tau = at(t)

        def displaced(x):
            changes = {k: getattr(model, k) + x["leaves"][k] for k in names}
            for k in turns:
                pose = getattr(model, k)
                rotation = pose.rotation @ jax.vmap(lambda w: dx.Rotation.exp(w).matrix)(x[k][0])
                changes[k] = dx.Transform(rotation, pose.translation + x[k][1])
            return value(dx.forward_dynamics, model.replace(**changes), x["dq"], v + x["dv"], tau + x["dtau"], None, q)

        still = {"leaves": jax.tree.map(jnp.zeros_like, direction)} | {
            k: jnp.zeros(model.nv) for k in ("dq", "dv", "dtau")
        }
        still |= {k: (jnp.zeros((model.num_bodies, 3)),) * 2 for k in turns}
        return jax.grad(displaced)(still)

    rates = jax.jit(lambda t: jax.jvp(first, (t,), (1.0,))[1], compiler_options=QUICK)(0.0)
    gradient = jax.jit(first, compiler_options=QUICK)
    h = 1e-3
    four = [gradient(k * h) for k in (1, -1, 2, -2)]
    expected = jax.tree.map(lambda a, b, c, d: (8.0 * (a - b) - (c - d)) / (12.0 * h), *four)
    for (path, ours), by_differences in zip(
        jax.tree_util.tree_leaves_with_path(rates), jax.tree.leaves(expected), strict=True
    ):
        scale = 1.0 + np.max(np.abs(by_differences))
        np.testing.assert_allclose(ours / scale, by_differences / scale, atol=1e-7, err_msg=jax.tree_util.keystr(path))


@pytest.mark.spec("RBDA-X-GRAD")
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_special_points_and_types(dtype):
    """Rest, identity, zero force: finite, and in the type of the state."""
    model, _ = small()
    zero = jnp.zeros(model.nv, dtype)
    q = dx.neutral(model).astype(dtype)
    inverse = dx.inverse_dynamics_derivatives(model, q, zero, zero)
    forward = dx.forward_dynamics_derivatives(model, q, zero, zero)
    gradient = jax.grad(lambda q: jnp.sum(dx.forward_dynamics(model, q, zero, zero) ** 2))(q)
    for x in (*inverse, *forward, gradient):
        assert x.dtype == dtype
        assert np.all(np.isfinite(x))
    # At rest no force depends on velocity but damping and dry friction do.
    slope = np.asarray(model.damping + model.friction_loss / model.friction_velocity)
    np.testing.assert_allclose(inverse.v, np.diag(slope), atol=1e-6)


def test_a_ball_that_rolls_is_differentiated_by_the_recursion():
    """Its five coordinates have three velocities, so the tangent space does not hold every change of `q`."""
    model = trees.build([(-1, dx.RollingBall(0.4)), (0, dx.Revolute((1.0, 0.0, 0.2)))], 3)
    s = trees.states(model, 1)
    f = jax.jit(lambda q: jnp.sum(dx.forward_dynamics(model, q, s.v[0], s.tau[0])))
    gradient = jax.jit(jax.grad(f))(s.q[0])
    h = 1e-5
    for k in range(2):
        step = h * np.eye(model.nq)[k]
        np.testing.assert_allclose(gradient[k], (f(s.q[0] + step) - f(s.q[0] - step)) / (2 * h), atol=1e-6)
    assert np.all(np.isfinite(gradient))

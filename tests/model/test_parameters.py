"""Parameters that an optimiser may move as it likes: the model stays one that there can be."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import trees

import dynax as dx


@lru_cache
def arm() -> dx.Model:
    return dx.load(resources.files("dynax") / "models/arm7.urdf")


def pseudo_inertias(model: dx.Model) -> np.ndarray:
    """About the origins: `[[S, h], [h^T, m]]`, which some mass has if and only if no eigenvalue is negative."""
    p = np.asarray(dx.inertial_parameters(model), np.float64)
    xx, yy, zz, xy, yz, xz = p[:, 4:].T
    tensor = np.stack([xx, xy, xz, xy, yy, yz, xz, yz, zz], 1).reshape(-1, 3, 3)
    second = 0.5 * np.trace(tensor, axis1=1, axis2=2)[:, None, None] * np.eye(3) - tensor
    return np.concatenate(
        [np.concatenate([second, p[:, 1:4, None]], 2), np.concatenate([p[:, 1:4], p[:, :1]], 1)[:, None]], 1
    )


def least(model: dx.Model) -> np.ndarray:
    """The least eigenvalue of each pseudo-inertia, in units of its diagonal."""
    p = pseudo_inertias(model)
    unit = 1.0 / np.sqrt(np.diagonal(p, axis1=1, axis2=2))
    return np.linalg.eigvalsh(unit[:, :, None] * p * unit[:, None])[:, 0]


def random_values(model: dx.Model, rng: np.random.Generator, size: float = 1.0) -> dict[str, jax.Array]:
    return {name: jnp.asarray(size * rng.normal(size=x.shape)) for name, x in dx.parameters(model).items()}


def assert_same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def assert_physical(model: dx.Model):
    for name in ("placements", "hinges", "frames", "loop_predecessors", "loop_successors"):
        r = np.asarray(getattr(model, name).rotation)
        np.testing.assert_allclose(r @ r.swapaxes(1, 2), np.broadcast_to(np.eye(3), r.shape), atol=1e-13)
    assert np.all(least(model) > 0.0)
    for name in ("armature", "damping", "friction_loss", "friction_velocity", "stiffness"):
        assert np.all(np.asarray(getattr(model, name)) >= 0.0)


def test_zero_is_the_model_in_every_bit(rng):
    model = trees.tree("mixed")
    for at in (model, trees.elsewhere(model, rng), jax.tree.map(lambda x: x.astype(jnp.float32), model)):
        values = dx.parameters(at)
        assert all(not x.any() and x.dtype == at.mass.dtype for x in values.values())
        assert_same(dx.with_parameters(at, values), at)


def test_any_values_give_a_model_that_there_can_be(rng):
    model = trees.tree("mixed")
    other = dx.with_parameters(model, random_values(model, rng))
    assert_physical(other)
    still = model.damping == 0.0
    np.testing.assert_array_equal(other.damping == 0.0, still)
    assert np.any(still)
    turns = dx.difference(model, model.spring_reference, other.spring_reference)
    assert np.all(np.isfinite(turns))
    np.testing.assert_allclose(dx.normalize(model, other.spring_reference), other.spring_reference, atol=1e-14)
    # In part: what is not named stays.
    part = dx.with_parameters(model, {"damping": jnp.full(model.nv, jnp.log(2.0))})
    assert_same(part, model.replace(damping=part.damping))
    np.testing.assert_allclose(part.damping, 2.0 * model.damping, rtol=1e-14)


def test_bodies_deform_by_log_cholesky_factors(rng):
    """`P -> e^(2 alpha) A P A^T` about the point of description; every body is reached from every other one, once."""
    model = trees.tree("arm")
    x = rng.normal(size=(7, 10))
    found = pseudo_inertias(dx.with_parameters(model, {"inertias": x}))
    for k, (p, (alpha, d1, d2, d3, s12, s23, s13, *t)) in enumerate(zip(pseudo_inertias(model), x, strict=True)):
        to_com = np.eye(4)
        to_com[:3, 3] = -np.asarray(model.com[k])
        a = np.eye(4)
        a[:3, :3] = [[np.exp(d1), s12, s13], [0.0, np.exp(d2), s23], [0.0, 0.0, np.exp(d3)]]
        a[:3, 3] = t
        a = np.linalg.inv(to_com) @ a @ to_com
        np.testing.assert_allclose(found[k], np.exp(2 * alpha) * a @ p @ a.T, rtol=1e-11, atol=1e-11)

    # Ten values for ten numbers, and a way between any two bodies: the factor of one over that of the other.
    whole = jax.jacfwd(lambda x: dx.inertial_parameters(dx.with_parameters(model, {"inertias": x}))[0])(jnp.asarray(x))
    assert np.linalg.matrix_rank(whole[:, 0]) == 10


def test_thin_rods_keep_their_digits_in_float32():
    """A rod that gets longer has the same moment about its axis, small as it is beside the others."""
    rod = dx.SpatialInertia(1.0, (1e4, 0.0, 0.0), (1e-7, 1.0, 1.0))
    model = dx.ModelBuilder().body("a", joint=dx.Free(), inertia=rod).build()
    single = jax.tree.map(lambda x: x.astype(jnp.float32), model)
    longer = dx.with_parameters(single, {"inertias": jnp.zeros((1, 10)).at[0, 1].set(0.5)})
    assert longer.inertia[0, 0] == single.inertia[0, 0]
    np.testing.assert_allclose(longer.inertia[0, 1:3], np.e, rtol=1e-6)
    np.testing.assert_array_equal(longer.com, single.com)


def test_adam_keeps_the_model_physical(rng):
    """Two hundred steps towards the motions of another arm."""
    model = arm()
    model = model.replace(friction_loss=model.friction_loss.at[2].set(0.0))
    q, v, tau = jnp.asarray(rng.normal(size=(3, 8, 7)))
    accelerate = jax.jit(jax.vmap(dx.forward_dynamics, (None, 0, 0, 0)))
    wanted = accelerate(dx.with_parameters(model, random_values(model, rng, 0.2)), q, v, tau)
    adam = optax.adam(0.01)

    def cost(x):
        return jnp.mean((accelerate(dx.with_parameters(model, x), q, v, tau) - wanted) ** 2)

    def step(carry, _):
        x, memory = carry
        value, slope = jax.value_and_grad(cost)(x)
        change, memory = adam.update(slope, memory)
        return (optax.apply_updates(x, change), memory), (value, optax.tree.norm(slope))

    start = dx.parameters(model)
    (values, _), (costs, slopes) = jax.jit(lambda x: jax.lax.scan(step, (x, adam.init(x)), length=200))(start)
    assert np.all(np.isfinite(slopes))
    assert costs[-1] < 0.1 * costs[0]
    fitted = dx.with_parameters(model, values)
    assert_physical(fitted)
    assert fitted.friction_loss[2] == 0.0


def test_what_no_body_can_be_is_named_and_stays(rng):
    ball = np.diag([0.1, 0.2, 0.25])
    turn = np.asarray(dx.Rotation.exp(rng.normal(size=3)).matrix)
    bodies = {
        "ball": dx.SpatialInertia(1.0, (1, 2, 3), turn @ ball @ turn.T),
        "rod": dx.SpatialInertia(2.0, (1, 2, 3), turn @ np.diag([0, 0.3, 0.3]) @ turn.T),
        "plate": dx.SpatialInertia(2.0, (1, 2, 3), turn @ np.diag([0.1, 0.2, 0.3]) @ turn.T),
        "point": dx.SpatialInertia(1e-3, (1, 2, 3)),
        "point but for rounding": dx.SpatialInertia(0.526, (0, 0, 0.03), np.diag([-5e-20, -5e-20, 0.0])),
        "seen from afar": dx.SpatialInertia(2.0, (0, 0, 0), (1.0, 9.0, 9.5), (4.0, 0.0, 0.0)),
        "nothing": dx.SpatialInertia(0.0),
        "rotor": dx.SpatialInertia(0.0, (0, 0, 0), (1, 1, 1)),
        "light": dx.SpatialInertia(1e-17, (0, 0, 0), (1, 1, 1), (1, 0, 0)),
        "triangle": dx.SpatialInertia(1.0, (0, 0, 0), turn @ np.diag([0.1, 0.1, 0.3]) @ turn.T),
        "negative": dx.SpatialInertia(1.0, (0, 0, 0), turn @ np.diag([-0.1, 0.4, 0.35]) @ turn.T),
        "behind": dx.SpatialInertia(2.0, (0, 0, 0), (1.0, 7.0, 9.5), (4.0, 0.0, 0.0)),
    }
    builder = dx.ModelBuilder()
    for name, inertia in bodies.items():
        builder.body(name, joint=dx.Revolute(), inertia=inertia, armature=1.0)
    model = builder.build()
    left_out = ("nothing", "rotor", "light", "triangle", "negative", "behind")
    for at in (model, jax.tree.map(lambda x: x.astype(jnp.float32), model)):
        assert dx.inconsistent_bodies(at) == left_out
    x = rng.normal(size=(len(bodies), 10))
    other = dx.with_parameters(model, {"inertias": x})
    slope = jax.grad(lambda x: jnp.sum(dx.with_parameters(model, {"inertias": x}).inertia ** 2))(x)
    rows = np.array([model.body_index(name) for name in left_out])
    others = np.setdiff1d(np.arange(len(bodies)), rows)
    np.testing.assert_array_equal(dx.inertial_parameters(other)[rows], dx.inertial_parameters(model)[rows])
    np.testing.assert_array_equal(slope[rows], 0.0)
    assert np.all(other.mass[others] != model.mass[others])
    assert np.all(np.isfinite(slope))


def test_parameters_that_do_not_fit_are_refused():
    model = arm()
    with pytest.raises(ValueError, match="no parameter named 'inertia'; did you mean one of: 'inertias'"):
        dx.with_parameters(model, {"inertia": jnp.zeros((7, 10))})
    with pytest.raises(ValueError, match=r"`damping` has shape \(3,\), expected \(7,\)"):
        dx.with_parameters(model, {"damping": jnp.zeros(3)})
    with pytest.raises(ValueError, match="`mass` has batch axes"):
        dx.parameters(model.replace(mass=jnp.ones((2, 7))))
    many = jax.vmap(lambda x: dx.with_parameters(model, {"inertias": x}).mass)(jnp.zeros((4, 7, 10)))
    np.testing.assert_array_equal(many, jnp.tile(model.mass, (4, 1)))

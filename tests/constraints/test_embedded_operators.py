"""Operators of an embedded model: the identities that hold on trees hold on aggregated ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx

pytestmark = pytest.mark.slow

LENGTHS = (0.5, 1.2, 1.2, 1.0)


@pytest.fixture(scope="module")
def walker():
    """Two four-bars on a floating trunk, a foot on each coupler, another floating body and a wheel on the ground."""
    rng = np.random.default_rng(0)
    crank, coupler, rocker, ground = LENGTHS
    at, hinge = dx.Transform.from_translation, dx.Revolute((0, 0, 1))

    def inertia(length):
        return dx.SpatialInertia(1.0 + rng.random(), (length / 2, 0.1, 0.02), (0.1, 0.2, 0.25))

    trunk = dx.SpatialInertia(5.0, (0, 0.1, 0), (0.5, 0.6, 0.7))
    builder = dx.ModelBuilder().body("trunk", joint=dx.Free(), inertia=trunk)
    q = {}
    for side, z in (("left", 1.0), ("right", -1.0)):
        builder.body(f"{side} crank", parent="trunk", joint=hinge, placement=at((0, 0, z)), inertia=inertia(crank),
                     armature=0.1)  # fmt: skip
        builder.body(f"{side} coupler", parent=f"{side} crank", joint=hinge, placement=at((crank, 0, 0)),
                     inertia=inertia(coupler))  # fmt: skip
        builder.body(f"{side} rocker", parent="trunk", joint=hinge, placement=at((ground, 0, z)),
                     inertia=inertia(rocker))  # fmt: skip
        builder.loop(side, predecessor=f"{side} coupler", successor=f"{side} rocker", joint=hinge,
                     predecessor_placement=at((coupler, 0, 0)), successor_placement=at((rocker, 0, 0)))  # fmt: skip
        builder.body(f"{side} foot", parent=f"{side} coupler", joint=dx.Universal(), placement=at((0.6, 0.1, 0)),
                     inertia=inertia(0.3))  # fmt: skip
        q |= {f"{side} crank_joint": np.pi / 3, f"{side} coupler_joint": -0.37, f"{side} rocker_joint": 1.4}
    builder.body("box", joint=dx.Free(), inertia=trunk)
    builder.body("wheel", joint=dx.Revolute((0, 1, 0)), inertia=trunk)
    tree = builder.build()
    guess = np.asarray(dx.neutral(tree)).copy()
    for joint, value in q.items():
        guess[tree.q_slice(joint)] = value
    model = dx.embed(tree, guess, independent=["left crank_joint", "right crank_joint"])
    q = dx.integrate(model, dx.normalize(model, guess), 0.1 * rng.normal(size=model.nv))
    return model, q, rng.normal(size=model.nv), rng.normal(size=model.nv)


def close(a, b, tolerance=1e-11):
    assert np.allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.spec("EMBED-MULTI", "EMBED-ABA", "EMBED-INV")
def test_forward_and_inverse_dynamics_undo_one_another(walker):
    model, q, v, tau = walker
    external = np.random.default_rng(1).normal(size=(model.num_bodies, 6))
    assert np.max(np.abs(dx.constraint_residual(model.tree, q))) < 1e-12
    a = dx.forward_dynamics(model, q, v, tau, external)
    close(dx.inverse_dynamics(model, q, v, a, external), tau, 1e-10)
    close(dx.inverse_mass_matrix(model, q) @ dx.mass_matrix(model, q), np.eye(model.nv))


@pytest.mark.spec("OP-X", "SKO", "EMBED-OMEGA", "EMBED-LOGDET", "AGG-E")
def test_operators_of_the_aggregated_tree(walker):
    model, q, _, tau = walker
    frames = ("left foot", "right coupler", "trunk")

    @jax.jit
    def found(model, q):
        ops, mass = dx.spatial_operators(model, q), dx.mass_matrix(model, q)
        jacobian = jnp.concatenate([dx.jacobian(model, q, name, frame="body") for name in frames])
        d = ops.D.dense()
        return {
            "mass": (ops.mass_matrix.dense(), mass),
            "factors": ((ops.F @ ops.D @ ops.F.T).dense(), mass),
            "inverse": (ops.inverse_mass_matrix.dense() @ mass, jnp.eye(model.nv)),
            "solve": (mass @ ops.mass_matrix.solve(jnp.asarray(tau)), tau),
            "jacobian": (ops.J(*frames).dense(), jacobian),
            "Lambda": (ops.Lambda(*frames).dense(), jacobian @ jnp.linalg.solve(mass, jacobian.T)),
            "determinant": (jnp.linalg.slogdet(d)[1], jnp.linalg.slogdet(mass)[1]),
            "W F": ((ops.W @ ops.F).dense(), jnp.eye(model.nv)),
        }

    for name, (one, other) in found(model, q).items():
        assert np.allclose(one, other, rtol=1e-11, atol=1e-11), name


def test_operators_of_an_embedded_model_refuse_what_has_no_meaning(walker):
    model, q, _, _ = walker
    ops = dx.spatial_operators(model, q)
    with pytest.raises(ValueError, match="restrict those of its tree"):
        ops.restrict(["trunk"])
    with pytest.raises(KeyError, match="left foot"):
        ops.J("left fot")
    with pytest.raises(TypeError, match="joint_forces takes a Model, not EmbeddedModel"):
        dx.joint_forces(model, q, np.zeros(model.nv), np.zeros(model.nv))

"""Operators of an embedded model: the identities that hold on trees hold on aggregated ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx
from dynax.linear.solve import solve
from dynax.spatial import Sym3, Vec3

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
            "Lambda": (ops.Lambda(*frames).dense(), jacobian @ solve(mass, jacobian.T)),
            "determinant": (d, mass),
            "W F": ((ops.W @ ops.F).dense(), jnp.eye(model.nv)),
        }

    results = found(model, q)
    results["determinant"] = tuple(np.linalg.slogdet(x)[1] for x in results["determinant"])
    for name, (one, other) in results.items():
        assert np.allclose(one, other, rtol=1e-11, atol=1e-11), name


NAMES = ("E_phi", "phi", "H", "M", "armature", "P", "P_plus", "D", "G", "K", "tau", "tau_bar", "psi", "F", "W")


@pytest.mark.spec("SKO-MODEL", "SKO-RICC", "SKO-FACT", "SKO-FD")
def test_equations_of_the_model(walker):
    """The model's equations, its Riccati equation, its factors and forward dynamics, as matrices."""
    model, q, v, tau = walker
    tree = model.tree

    @jax.jit
    def evaluate(q, v):
        ops, x = dx.spatial_operators(model, q), dx.embedding_matrix(model, q)
        whole = x @ v
        rate = dx.configuration_rate(tree, q, whole)
        xdot = jax.jvp(lambda q: dx.embedding_matrix(model, q), (q,), (rate,))[1]
        twists = dx.body_velocities(tree, q, whole)
        still = dx.body_accelerations(tree, q, whole, xdot @ v)
        axes = dx.forward_kinematics(tree, q).rotation
        still = still.at[:, 3:].add(-jnp.einsum("nij,i->nj", axes, tree.gravity))
        com, moments = Vec3.from_array(tree.com), Sym3.from_six(tree.inertia)
        inertias = dx.RigidInertia.from_com(tree.mass, com, moments).matrix
        momenta = jnp.einsum("nij,nj->ni", inertias, twists)
        w, u, n, f = twists[:, :3], twists[:, 3:], momenta[:, :3], momenta[:, 3:]
        gyroscopic = jnp.concatenate([jnp.cross(w, n) + jnp.cross(u, f), jnp.cross(w, f)], axis=1)
        order = np.concatenate(ops.members)
        stacked = [y[order].reshape(-1) for y in (twists, still, gyroscopic)]
        return {name: getattr(ops, name).dense() for name in NAMES}, *stacked

    d, twists, still, b = jax.tree.map(np.asarray, evaluate(q, v))
    e, phi, h, m, rotor, p, plus, dd, g, k, project, bar, psi, f, w = (d[name] for name in NAMES)
    one, unit = np.eye(len(e)), np.eye(model.nv)
    close(phi, np.linalg.inv(one - e))
    close(phi.T @ h.T @ v, twists)
    a = still - e.T @ still
    mass = h @ phi @ m @ phi.T @ h.T + rotor
    close(mass, dx.mass_matrix(model, q))
    bias = h @ phi @ (m @ phi.T @ a + b)
    close(bias, dx.bias_force(model, q, v), 1e-10)
    # From the tips inwards.
    close(p, m + e @ plus @ e.T)
    close(dd, h @ p @ h.T + rotor)
    close(g @ dd, p @ h.T)
    close(k, e @ g)
    close(project, g @ h)
    close(plus, bar @ p)
    close(psi, np.linalg.inv(one - e @ bar))
    close(f, unit + h @ phi @ k)
    close(w, unit - h @ psi @ k)
    close(w @ f, unit)
    close(f @ dd @ f.T, mass)
    close(w.T @ np.linalg.solve(dd, w), np.linalg.inv(mass), 1e-10)
    found = w.T @ np.linalg.solve(dd, tau - h @ psi @ (k @ tau + p @ a + b)) - k.T @ psi.T @ a
    close(found, np.linalg.solve(mass, tau - bias), 1e-10)
    close(found, dx.forward_dynamics(model, q, v, tau), 1e-10)


def test_operators_of_an_embedded_model_refuse_what_has_no_meaning(walker):
    model, q, _, _ = walker
    ops = dx.spatial_operators(model, q)
    with pytest.raises(ValueError, match="restrict those of its tree"):
        ops.restrict(["trunk"])
    with pytest.raises(KeyError, match="left foot"):
        ops.J("left fot")
    with pytest.raises(TypeError, match="joint_forces takes a Model, not EmbeddedModel"):
        dx.joint_forces(model, q, np.zeros(model.nv), np.zeros(model.nv))

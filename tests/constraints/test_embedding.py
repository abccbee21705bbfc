"""Embedded loops against the closed tree: a forest of mechanisms of every kind, in one program."""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constraints import mechanisms
from constraints.mechanisms import HINGE, at, rod

import dynax as dx
from dynax.constraints.residual import rows_at

# Minutes of compiling; and on several threads it hung once in four runs of everything (docs/batches.md).
pytestmark = pytest.mark.slow

COUNT = 2


def close(found, expected, tolerance):
    """Relative to the largest entry."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max(initial=0.0) <= tolerance * max(1.0, np.abs(expected).max(initial=0.0))


def cam() -> mechanisms.Mechanism:
    """Two rods of a double pendulum, the second led by the first."""
    builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0), name="cam")
    builder.body("one", joint=HINGE, inertia=rod(0.8, 1.3))
    builder.body("two", parent="one", joint=HINGE, placement=at(0.8), inertia=rod(0.6, 0.7))
    builder.gear("two_joint", "one_joint", function=lambda x: 0.3 * jnp.sin(x) + 0.25 * x**2)
    return mechanisms.Mechanism(builder.build(), np.array([0.7, 0.3 * np.sin(0.7) + 0.25 * 0.49]), 1)


def forest(parts, gravity=(0.3, -9.81, 0.4)) -> tuple[dx.Model, np.ndarray]:
    """Mechanisms side by side in one model, their names with a prefix."""
    model = dx.ModelBuilder(gravity=gravity, name="forest").build()
    for prefix, part in parts.items():
        joint = dx.Free() if part.model.topology.joints[0] == dx.Free() else None
        model = dx.attach(model, part.model, prefix=f"{prefix}_", joint=joint)
    return model, np.concatenate([part.q for part in parts.values()])


@jax.jit
def facts(embedded, q, v, tau, external):
    """Everything about one state, of the embedded model and of its tree."""
    tree = embedded.tree
    independent = jnp.array(embedded.independent)
    # One linearisation for both matrices: the rates follow from their own values.
    (tree_mass, x), along = jax.linearize(lambda q: (dx.mass_matrix(tree, q), dx.embedding_matrix(embedded, q)), q)
    whole = x @ v
    mass_rate, xdot = along(dx.configuration_rate(tree, q, whole))
    rows = rows_at(tree, q, whole)
    a = dx.forward_dynamics(embedded, q, v, tau, external)
    force = jnp.zeros(tree.nv).at[independent].set(tau)
    factor = dx.innovations_factor(embedded, q)
    eye = jnp.eye(embedded.nv)
    return {
        "x": x,
        "whole": whole,
        "xdot": xdot,
        "k": rows.matrix,
        "k_bias": rows.bias,
        "residual": rows.residual,
        "moves": jax.jacfwd(lambda d: dx.difference(tree, q, dx.integrate(embedded, q, d)))(jnp.zeros_like(v)),
        "a": a,
        "needed": dx.inverse_dynamics(embedded, q, v, a, external),
        "bias": dx.bias_force(embedded, q, v),
        "gravity": dx.gravity_force(embedded, q),
        "coriolis": dx.coriolis_matrix(embedded, q, v),
        "mass": dx.mass_matrix(embedded, q),
        "mass_rate": mass_rate,
        "inverse": factor.inverse(),
        "logdet": factor.logdet(),
        "root": factor.apply(eye),
        "root_transpose": factor.apply_transpose(eye),
        "rooted": factor.solve_root(eye),
        "rooted_transpose": factor.solve_root_transpose(eye),
        "tree_mass": tree_mass,
        "tree_force": dx.inverse_dynamics(tree, q, whole, x @ a + xdot @ v, external) - force,
        "kkt": dx.constrained_dynamics(tree, q, whole, force, external, method="kkt"),
        "quality": dx.embedding_quality(embedded, q),
    }


@lru_cache
def case():
    """A forest at random states near its assembled configuration, and all facts about them."""
    parts = {
        "inside": mechanisms.four_bar(),
        "end": mechanisms.four_bar(cut="terminal"),
        "slider": mechanisms.slider_crank(),
        "cam": cam(),
        "bricard": mechanisms.bricard(),
        "differential": mechanisms.bevel_differential(),
        "gears": mechanisms.geared_chain(2, moving=True),
        "robot": mechanisms.legged_robot(2),
    }
    model, guess = forest(parts)
    model = model.replace(armature=jnp.linspace(0.0, 0.1, model.nv), damping=jnp.linspace(0.2, 0.0, model.nv))
    embedded = dx.embed(model, guess)
    rng = np.random.default_rng(3)
    start = dx.normalize(embedded, guess)
    q = jax.jit(jax.vmap(lambda d: dx.integrate(embedded, start, d)))(0.1 * rng.normal(size=(COUNT, embedded.nv)))
    v, tau = rng.normal(size=(2, COUNT, embedded.nv))
    external = rng.normal(size=(COUNT, model.num_bodies, 6))
    found = jax.vmap(facts, (None, 0, 0, 0, 0))(embedded, q, v, tau, external)
    return parts, embedded, q, v, tau, jax.tree.map(np.asarray, found)


def test_the_forest():
    """Which freedoms are left, and what is aggregated: pairs of geared wheels, chains, loops on the ground."""
    parts, embedded, *_ = case()
    assert embedded.nv == sum(part.mobility for part in parts.values())
    assert embedded.body_names[embedded.body_index("gears_link1")] == "gears_link1"
    with pytest.raises(KeyError, match="gears_link1"):
        embedded.body_index("gears_link")
    names = {frozenset(bodies) for bodies in embedded.aggregates}
    assert frozenset({"gears_motor1", "gears_link1"}) in names
    assert frozenset({"robot_leg0_driver", "robot_leg0_support", "robot_leg0_foot"}) in names
    assert frozenset({f"differential_{b}" for b in ("ring", "wheel", "left", "right")}) in names
    assert len(names) == len(parts) + 2


@pytest.mark.spec("EMBED-X", "EMBED-LOOP", "EMBED-POS", "OP-X", "OP-Y")
def test_the_embedding_matrix():
    _, embedded, _, v, _, f = case()
    assert np.abs(f["residual"]).max() < 1e-12
    close(f["k"] @ f["x"], 0.0 * (f["k"] @ f["x"]), 1e-12)
    assert all(np.array_equal(x[list(embedded.independent)], np.eye(embedded.nv)) for x in f["x"])
    # Y = [Y1 Y2], X = [-Y1^+ Y2; 1]
    free = list(embedded.independent)
    bound = np.setdiff1d(np.arange(embedded.tree.nv), free)
    for y, x in zip(f["k"], f["x"], strict=True):
        close(x[bound], -np.linalg.pinv(y[:, bound], rcond=1e-9) @ y[:, free], 1e-9)
    # It is the Jacobian of the configuration by the independent coordinates.
    close(f["moves"], f["x"], 1e-10)
    # Its rate is that of its entries, and meets the conditions on accelerations.
    drift = np.einsum("sij,sj->si", f["xdot"], v)
    close(np.einsum("sij,sj->si", f["k"], drift), f["k_bias"], 1e-10)


@pytest.mark.spec("EMBED-ABA", "EMBED-ID", "EMBED-CRB", "EMBED-INV", "EMBED-LOGDET", "EMBED-MULTI", "EMBED-LIMIT")
def test_dynamics():
    """The recursion over nodes, the dense projection, and the KKT system agree."""
    _, embedded, _, v, tau, f = case()
    x, mass = f["x"], f["mass"]
    close(mass, np.swapaxes(x, 1, 2) @ f["tree_mass"] @ x, 1e-12)
    close(f["needed"], tau, 1e-10)
    close(f["a"], f["kkt"].a[:, list(embedded.independent)], 1e-9)
    drift = np.einsum("sij,sj->si", f["xdot"], v)
    close(np.einsum("sij,sj->si", x, f["a"]) + drift, f["kkt"].a, 1e-9)
    close(f["inverse"], np.linalg.inv(mass), 1e-11)
    close(f["logdet"], np.linalg.slogdet(mass)[1], 1e-12)


@pytest.mark.spec("EMBED-INV", "EMBED-LOGDET")
def test_the_innovations_factor():
    f = case()[-1]
    close(f["root"] @ np.swapaxes(f["root"], 1, 2), f["mass"], 1e-12)
    close(f["root_transpose"], np.swapaxes(f["root"], 1, 2), 1e-13)
    close(f["rooted"], np.linalg.inv(f["root"]), 1e-11)
    close(f["rooted_transpose"], np.swapaxes(f["rooted"], 1, 2), 1e-12)


@pytest.mark.spec("EMBED-ID")
def test_coriolis_matrix():
    """`C v` are the velocity terms, and the rate of the mass matrix is `C + C^T`."""
    _, embedded, _, v, _, f = case()
    c, x, xdot = f["coriolis"], f["x"], f["xdot"]
    half = np.swapaxes(x, 1, 2) @ f["tree_mass"] @ xdot
    close(c + np.swapaxes(c, 1, 2), np.swapaxes(x, 1, 2) @ f["mass_rate"] @ x + half + np.swapaxes(half, 1, 2), 1e-10)
    damped = np.einsum("sij,si->sj", x, np.asarray(embedded.damping) * f["whole"])
    close(np.einsum("sij,sj->si", c, v) + f["gravity"] + damped, f["bias"], 1e-10)


@pytest.mark.spec("EMBED-LAMBDA-REC")
def test_reactions():
    """From the accelerations: `Y1^T lambda` is what the dependent joints lack; of least norm as those of the KKT."""
    _, embedded, _, _, _, f = case()
    dependent = np.setdiff1d(np.arange(embedded.tree.nv), embedded.independent)
    for s in range(COUNT):
        found = np.linalg.lstsq(f["k"][s][:, dependent].T, f["tree_force"][s, dependent], rcond=1e-10)[0]
        close(found, f["kkt"].multipliers[s], 1e-9)
        close(f["k"][s].T @ found, f["tree_force"][s], 1e-9)


@pytest.mark.spec("EMBED-RANK", "ERR-18")
def test_redundant_rows_count_once():
    """Five rows of the four-bars have rank 2, of the Bricard ring 4: `X` has full rank and the quality is finite."""
    _, embedded, _, _, _, f = case()
    assert np.all(np.isfinite(f["quality"].dependent))
    assert np.all(f["quality"].dependent > 1e-2)
    assert np.all(f["quality"].conditions >= f["quality"].dependent - 1e-12)
    assert np.all(f["quality"].error < 1e-12)
    rows = f["k"].shape[1]
    assert np.all(f["kkt"].rank == embedded.tree.nv - embedded.nv)
    assert rows > embedded.tree.nv - embedded.nv

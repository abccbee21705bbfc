"""Operators are put together as they are written, and what is known about a product or sum changes no number."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import lineax
import numpy as np
import pytest
import trees
from operators.matrices import case, close

import dynax as dx
from dynax.operators import Identity, Propagation
from dynax.operators.fused import ComplianceOperator, CompositeOperator, MassMatrix, NodeCompliance, UnitTriangular
from dynax.operators.operator import Product, Sum


def one_by_one(factors, x):
    """The product of operators without any pattern: each applied by itself."""
    for factor in reversed(factors):
        x = factor @ x
    return x


def expressions(ops):
    """What the table knows: as it is written, its factors, and the class it becomes."""
    phi, psi, h, m, d, b = ops.phi, ops.psi, ops.H, ops.M, ops.D, ops.B("tool", "b3")
    inner = psi.T, h.T, d.inv, h, psi
    return {
        "mass": (h @ phi @ m @ phi.T @ h.T, (h, phi, m, phi.T, h.T), MassMatrix),
        "composite": (phi @ m @ phi.T, (phi, m, phi.T), CompositeOperator),
        "Omega": (psi.T @ h.T @ d.inv @ h @ psi, inner, ComplianceOperator),
        "Lambda": (b.T @ psi.T @ h.T @ d.inv @ h @ psi @ b, (b.T, *inner, b), NodeCompliance),
        "grouped": ((h @ phi) @ (m @ (phi.T @ h.T)), (h, phi, m, phi.T, h.T), MassMatrix),
        "FDF*": (ops.F @ d @ ops.F.T, (ops.F, d, ops.F.T), Product),
        "W*D^-1W": (ops.W.T @ d.inv @ ops.W, (ops.W.T, d.inv, ops.W), Product),
        "tail": (ops.W @ h @ phi @ m @ phi.T, (ops.W, h, phi, m, phi.T), Product),
        "two compliances": (phi.T @ h.T @ h @ phi, (phi.T, h.T, h, phi), ComplianceOperator),
        "gain": (ops.E_phi @ ops.G, (ops.E_phi, ops.G), type(ops.K)),
        # Alike, and not the same: these are no congruences, and stay as they are.
        "phi M psi*": (phi @ m @ psi.T, (phi, m, psi.T), Product),
        "psi* X phi": (psi.T @ h.T @ h @ phi, (psi.T, h.T, h, phi), Product),
        "other hinges": (h @ phi @ m @ phi.T @ (2 * h.T), (h, phi, m, phi.T, 2 * h.T), Product),
        "not positive": (h @ phi @ ops.tau @ phi.T @ h.T, (h, phi, ops.tau, phi.T, h.T), Product),
    }


@pytest.mark.spec("OPX")
def test_known_products_are_the_products(rng):
    ops = case("arm").ops
    sizes = {key: a.shape[1] for key, (a, _, _) in expressions(ops).items()}
    xs = {key: jnp.asarray(rng.normal(size=(size, 2))) for key, size in sizes.items()}

    @jax.jit
    def both(ops, xs):
        return {key: (a @ xs[key], one_by_one(f, xs[key])) for key, (a, f, _) in expressions(ops).items()}

    for key, (fused, plain) in both(ops, xs).items():
        close(fused, plain, 1e-13)
        assert type(expressions(ops)[key][0]) is expressions(ops)[key][2], key


@pytest.mark.spec("OPX", "SOA-MINV", "LEM-0.2", "LEM-0.3")
def test_solutions(rng):
    """Everything that has an inverse without a matrix being formed."""
    c = case("screws")

    def invertible(ops):
        one, i = ops.I_bodies, ops.I
        mass = ops.H @ ops.phi @ ops.M @ ops.phi.T @ ops.H.T
        return {
            "D": ops.D,
            "M": ops.M,
            "I": i,
            "1 - E": one - ops.E_phi,
            "phi": ops.phi,
            "psi.T": ops.psi.T,
            "F": i + ops.H @ ops.phi @ ops.K,
            "E G": i + ops.H @ ops.phi @ ops.E_phi @ ops.G,
            "W": i - ops.H @ ops.psi @ ops.K,
            "mass": mass,
            "with armature": mass + ops.armature,
            "armature first": ops.armature + mass,
            "F D F*": ops.F @ ops.D @ ops.F.T,
            "composite": ops.phi @ ops.M @ ops.phi.T,
            "scaled": 2.5 * ops.D,
        }

    b = {key: jnp.asarray(rng.normal(size=a.shape[0])) for key, a in invertible(c.ops).items()}

    @jax.jit
    def back(ops, b):
        return {key: a @ a.solve(b[key]) for key, a in invertible(ops).items()}

    for key, found in back(c.ops, b).items():
        close(found, b[key], 1e-11)
    every = invertible(c.ops)
    assert isinstance(every["1 - E"].inv, Propagation)
    assert isinstance(every["F"].inv, UnitTriangular)
    assert every["mass"].inv.positive
    for a in (c.ops.H, c.ops.E_phi, c.ops.Omega + c.ops.P, c.ops.J("tool")):
        with pytest.raises(ValueError, match=r"invertible are|no inverse"):
            a.solve(jnp.zeros(a.shape[0]))


def primitives(jaxpr, found=None):
    """The primitives of a program and the largest array in it."""
    found = {"largest": 0} if found is None else found
    for eqn in jaxpr.eqns:
        found[eqn.primitive.name] = found.get(eqn.primitive.name, 0) + 1
        found["largest"] = max([found["largest"], *(v.aval.size for v in eqn.outvars)])
        for value in eqn.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                if hasattr(inner, "jaxpr"):
                    primitives(inner.jaxpr, found)
                elif hasattr(inner, "eqns"):
                    primitives(inner, found)
    return found


@pytest.mark.spec("OPX", "SOA-PHI")
def test_an_expression_is_its_sweeps():
    """Two walks for the mass matrix and its inverse, none for blocks, and nothing larger than the blocks of a body."""
    n = 60
    model = trees.build([(k - 1, dx.Revolute((0.0, 1.0, 0.3))) for k in range(n)])
    ops = jax.eval_shape(partial(dx.spatial_operators, model), dx.neutral(model))
    walks = {
        "phi": (6 * n, 1), "psi": (6 * n, 1), "F": (n, 1), "W": (n, 1), "mass_matrix": (n, 2),
        "inverse_mass_matrix": (n, 2), "Omega": (6 * n, 2), "H": (6 * n, 0), "K": (n, 0),
    }  # fmt: skip
    for name, (size, count) in walks.items():
        program = jax.make_jaxpr(lambda ops, x, name=name: getattr(ops, name) @ x)(ops, jnp.zeros(size))
        found = primitives(program.jaxpr)
        assert found.get("scan", 0) == count, (name, found)
        assert found["largest"] <= 36 * n
    program = jax.make_jaxpr(lambda ops, x: ops.mass_matrix.solve(x))(ops, jnp.zeros(n))
    found = primitives(program.jaxpr)
    assert found["scan"] == 3
    assert found["largest"] <= 36 * n


@pytest.mark.spec("OPX")
def test_algebra(rng):
    ops = case("arm").ops
    a, b = ops.P, ops.phi
    x, y = jnp.asarray(rng.normal(size=a.shape[1])), rng.normal(size=(3, a.shape[0]))
    left, right = np.asarray(a.dense()), np.asarray(b.dense())
    for expression, matrix in [
        (a + b, left + right),
        (a - b, left - right),
        (-b, -right),
        (2.0 * b, 2 * right),
        (b * np.float64(0.5), right / 2),
        (b / 4, right / 4),
        (a @ b + b - a, left @ right + right - left),
        ((a @ b).T, (left @ right).T),
        ((a - b).T, (left - right).T),
        ((3 * b).T, 3 * right.T),
        (ops.I_bodies @ b, right),
        (ops.I_bodies @ ops.I_bodies, np.eye(len(left))),
        (b - ops.I_bodies, right - np.eye(len(left))),
        (b.inv.T @ b.T, np.eye(len(left))),
    ]:
        close(expression @ x, matrix @ x, 1e-13)
        close(expression.T @ x, matrix.T @ x, 1e-13)
    close(y @ b, y @ right, 1e-13)
    close(jnp.asarray(y) @ b, y @ right, 1e-13)
    close(y[0] @ b, y[0] @ right, 1e-13)
    close(b @ np.eye(len(right), dtype=int), right, 1e-14)
    close(b.mv(jnp.stack([x, -x], 1)), right @ np.stack([x, -x], 1), 1e-13)
    assert isinstance(a + b, Sum)
    assert (a + a).positive
    assert not (a - a).positive
    assert repr(a @ b) == f"Product({a.shape[0]}, {a.shape[1]})"
    assert b.T.T is b
    assert a.T is a
    with pytest.raises(ValueError, match="cannot compose"):
        ops.H @ ops.H
    with pytest.raises(ValueError, match="cannot add"):
        ops.H + ops.P
    with pytest.raises(ValueError, match=r"takes vectors \(42,\)"):
        a @ jnp.zeros(7)
    with pytest.raises(ValueError, match=r"transposed takes vectors"):
        ops.H.rmv(jnp.zeros(42))
    with pytest.raises(TypeError, match="composed"):
        a * b
    with pytest.raises(TypeError):
        a + 1.0
    assert Identity(3).dense().dtype == jnp.result_type(float)


@pytest.mark.spec("OPX")
def test_lineax():
    """Its solvers take our operators, with what is known of them; nothing else of ours needs the package."""
    c = case("arm")
    tau = jnp.asarray(np.linspace(-1.0, 2.0, c.model.nv))
    mass = c.ops.mass_matrix.as_lineax()
    assert lineax.is_symmetric(mass)
    assert lineax.is_positive_semidefinite(mass)
    assert not lineax.is_symmetric(c.ops.phi.as_lineax())
    found = lineax.linear_solve(mass, tau, lineax.CG(rtol=1e-12, atol=1e-12)).value
    close(found, np.linalg.solve(c.mass, tau), 1e-9)
    close(mass.as_matrix(), c.mass, 1e-12)
    close(c.ops.phi.as_lineax().T.mv(jnp.ones(c.ops.phi.shape[0])), c.ops.phi.T @ np.ones(c.ops.phi.shape[0]), 1e-13)

    # The factor as a preconditioner: one step.
    inverse = c.ops.inverse_mass_matrix.as_lineax()
    solver = lineax.CG(rtol=1e-10, atol=1e-10, max_steps=3)
    found = lineax.linear_solve(mass, tau, solver, options={"preconditioner": inverse}).value
    close(found, np.linalg.solve(c.mass, tau), 1e-9)


SMALL = (
    (-1, dx.Free()),
    (0, dx.Spherical()),
    (1, dx.Revolute((0.0, 1.0, 0.0))),
    (0, dx.Universal((0.0, 0.0, 1.0), (0.0, 1.0, 0.0))),
)


@pytest.mark.spec("OPX", "OP-F", "OP-OMEGA")
def test_gradients(rng):
    """What operators give has the right gradient along the tangent space, finite for all parameters, in any state."""
    model = trees.build(SMALL)
    x, step = (jnp.asarray(rng.normal(size=model.nv)) for _ in range(2))
    force, h = jnp.linspace(-1.0, 1.0, 12), 1e-5
    qs = jnp.stack([trees.states(model, 1).q[0], dx.neutral(model)])

    def value(t, model, q):
        ops = dx.spatial_operators(model, dx.integrate(model, q, t * step))
        mass = ops.mass_matrix
        return jnp.stack([x @ (mass @ x), x @ mass.solve(x), force @ (ops.Lambda("tool", "b2") @ force)])

    @jax.jit
    def program(t, model, qs):
        def slope(t, q):
            return value(t, model, q), jax.jacrev(value, argnums=(0, 1))(t, model, q)

        return jax.vmap(lambda q: jax.vmap(lambda t: slope(t, q))(t))(qs)

    values, (rates, by_model) = program(jnp.array([-h, 0.0, h]), model, qs)
    close(rates[:, 1], (values[:, 2] - values[:, 0]) / (2 * h), 1e-7)
    for leaf in jax.tree.leaves(by_model):
        assert np.all(np.isfinite(leaf))
    assert np.abs(by_model.mass).min() > 0


def test_batches(rng):
    c = case("arm")
    x = jnp.asarray(rng.normal(size=c.model.nv))
    batch = jax.tree.map(lambda a: jnp.stack([a, 2 * a]), c.ops.mass_matrix)
    assert batch.shape == (c.model.nv, c.model.nv)
    found = jax.vmap(lambda mass: mass @ x)(batch)
    close(found[0], c.mass @ x, 1e-13)
    close(jax.vmap(c.ops.W.mv)(jnp.stack([x, -x])), np.stack([c.dense["W"] @ x, -c.dense["W"] @ x]), 1e-13)


@pytest.mark.spec("ABI-P", "OP-P")
def test_float32():
    """Light and heavy bodies in turn, a million to one: what is left of an inertia stays positive semidefinite.

    It is singular, so to rounding. Without the form of Joseph, rounding is ten times what is allowed here.
    """
    n = 12
    model = trees.build([(k - 1, dx.Cylindrical((0.3, 1.0, 0.1))) for k in range(n)], passive=False)
    scale = jnp.where(jnp.arange(n) % 2 == 0, 1e6, 1.0)
    model = model.replace(mass=model.mass * scale, inertia=model.inertia * scale[:, None])
    q = trees.states(model, 20).q
    exact = dx.spatial_operators(model, q[0])
    batch = jax.vmap(lambda q: dx.spatial_operators(model, q))(q.astype(jnp.float32))
    values = np.linalg.eigvalsh(np.asarray(batch.P_plus.blocks, float))
    assert np.all(values[..., 0] > -3e-7 * values[..., -1])
    single = jax.tree.map(lambda a: a[0], batch)
    assert single.P.blocks.dtype == single.I.dense().dtype == jnp.float32
    x = jnp.ones(model.nv, jnp.float32)
    found = single.mass_matrix @ x
    assert found.dtype == jnp.float32
    close(found, exact.mass_matrix @ np.ones(model.nv), 1e-5)
    found = single.F @ x
    assert found.dtype == jnp.float32
    close(found, exact.F @ np.ones(model.nv), 1e-3)

"""Articulated and composite inertias as the recursions hold them (Featherstone 2008, chapters 6, 7; Jain, ABI, CRB)."""

from __future__ import annotations

from functools import lru_cache

import jax.numpy as jnp
import numpy as np
import pytest
import routes
from dense import Dense, crf, motion_transform, mul

import dynax as dx
from dynax.spatial import Transform

NAME = "screws"


def t(matrix):
    return np.swapaxes(matrix, -1, -2)


@lru_cache
def case(armature: bool = True):
    """The model, its first state as a batch of one, the dense oracle and the inside of the recursions."""
    model, s, _ = routes.case(NAME)
    if not armature:
        model = model.replace(armature=0 * model.armature)
    return model, s, Dense(model, s.q[:1], s.v[:1]), routes.numpy(routes.articulated(model, s.q[0]))


def in_world(model, dense, body, inertia):
    """An inertia in body axes about the body's origin, in world axes about its joint."""
    r = dense.rotation[0, body]
    zero = np.zeros((3, 3))
    y = np.block([[r, zero], [zero, r]]) @ motion_transform(np.eye(3), np.asarray(model.hinges.translation[body]))
    back = np.linalg.inv(y)
    return back.T @ inertia @ back


def at_anchor(model):
    """Motions of the root about its origin, about the point its joint acts at: that is what its velocities are."""
    return motion_transform(np.eye(3), np.asarray(model.hinges.translation[0]))


def close(a, b, tolerance=1e-11):
    np.testing.assert_allclose(a, b, atol=tolerance * max(1.0, np.abs(b).max()))


@pytest.mark.spec("RBDA-7.1-PROPS", "RBDA-7.2.2-SUB", "ABI-P")
@pytest.mark.parametrize("armature", [True, False])
def test_articulated_inertias(armature):
    model, _, dense, (p, plus, _, _, root) = case(armature)
    expected, handed = dense.articulated(model.armature)
    for body in range(1, model.num_bodies):
        close(p[body - 1], in_world(model, dense, body, expected[0, body]))
        close(plus[body - 1], in_world(model, dense, body, handed[0, body]))
        assert np.linalg.eigvalsh(p[body - 1]).min() > 0
        close(p[body - 1], p[body - 1].T, 1e-15)
        # Apparent mass depends on the direction: not a rigid inertia where something hangs on the body.
        if model.topology.children[body] and not armature:
            assert np.ptp(np.linalg.eigvalsh(p[body - 1][3:, 3:])) > 1e-3
    back = np.linalg.inv(at_anchor(model))
    close(root, back.T @ expected[0, 0] @ back)
    # M = P - E_psi P E_psi*, with everything stacked; the root hands nothing on.
    if not armature:
        n = model.num_bodies
        big, through = np.zeros((6 * n, 6 * n)), np.zeros((6 * n, 6 * n))
        for body, parent in enumerate(model.parents):
            rows = slice(6 * body, 6 * body + 6)
            big[rows, rows] = expected[0, body]
            if parent >= 0:
                s = dense.columns[body][0]
                gain = expected[0, body] @ s @ np.linalg.inv(s.T @ expected[0, body] @ s)
                passed = np.eye(6) - gain @ s.T
                through[6 * parent : 6 * parent + 6, rows] = dense.transform[0, body].T @ passed
                close(passed @ expected[0, body], handed[0, body])
        difference = big - through @ big @ through.T
        for body in range(n):  # siblings share off-diagonal terms; the diagonal is the recursion
            rows = slice(6 * body, 6 * body + 6)
            close(difference[rows, rows], dense.inertia[rows, rows])


@pytest.mark.spec("RBDA-7.2.2-NULL", "ABI-NULL")
def test_motion_along_the_hinge_is_not_transmitted():
    _, _, _, (p, plus, column, _, _) = case(armature=False)
    for k, s in enumerate(column):
        close(plus[k] @ s, 0 * s, 1e-13 * np.abs(p[k]).max())
        assert np.linalg.matrix_rank(plus[k], tol=1e-9) <= 5
        gain = p[k] @ s / (s @ p[k] @ s)
        close((np.eye(6) - np.outer(gain, s)).T @ s, 0 * s, 1e-14)


@pytest.mark.spec("CRB-R", "RBDA-6.2-CRBA")
def test_composite_inertias():
    model, _, dense, (_, _, _, composite, _) = case()
    whole = dense.phi[0] @ dense.inertia @ dense.phi_t[0]
    n = model.num_bodies
    r = np.zeros((6 * n, 6 * n))
    for body in range(n):
        rows = slice(6 * body, 6 * body + 6)
        r[rows, rows] = whole[rows, rows]
        if body:
            close(composite[body - 1], in_world(model, dense, body, whole[rows, rows]))
    # M = R - E_phi R E_phi*, block by block along the diagonal.
    handed = t(dense.e[0]) @ r @ dense.e[0]
    for body in range(n):
        rows = slice(6 * body, 6 * body + 6)
        close(r[rows, rows] - handed[rows, rows], dense.inertia[rows, rows])


@pytest.mark.spec("RBDA-7.2.2-SUB", "IBF", "CRB-ID")
def test_forces_between_bodies_from_either_recursion():
    """f_j = I_j^A a_j + p_j^A = I_j^a a_lambda + p_j^a (eq. 7.25), and by composite bodies f = R alpha + y."""
    model, s, y = routes.case(NAME)
    dense = Dense(model, s.q, s.v)
    forces = routes.dynamics(NAME, model, s.q, s.v, jnp.asarray(y["fd"]), s.tau, s.external)["forces"]
    p, plus = dense.articulated(model.armature)
    acceleration = dense.acceleration(y["fd"], gravity=True)
    momentum = dense.stack(mul(dense.inertia, dense.flat(dense.velocity)))
    own = mul(crf(dense.velocity), momentum) - np.asarray(s.external)
    rotor = np.asarray(model.armature)
    friction = model.damping * s.v + model.friction_loss * jnp.tanh(s.v / model.friction_velocity)
    tau = np.array(s.tau - friction)
    for k in range(len(tau)):
        tau[k] -= np.asarray(model.stiffness * dx.difference(model, model.spring_reference, s.q[k]))
    bias = np.array(own)
    for body in reversed(range(model.num_bodies)):
        columns = dense.columns[body]
        start = model.topology.v_start[body]
        mine = slice(start, start + columns.shape[-1])
        d = t(columns) @ p[:, body] @ columns + np.diag(rotor[mine])
        c = dense.product[:, body]
        u = tau[:, mine] - mul(t(columns), bias[:, body])
        passed = (
            bias[:, body] + mul(plus[:, body], c) + mul(p[:, body] @ columns, np.linalg.solve(d, u[..., None])[..., 0])
        )
        close(mul(p[:, body], acceleration[:, body]) + bias[:, body], forces[:, body], 1e-9)
        parent, x = model.parents[body], dense.transform[:, body]
        above = dense.base[:, body] if parent < 0 else mul(x, acceleration[:, parent])
        close(mul(plus[:, body], above) + passed, forces[:, body], 1e-9)
        if parent >= 0:
            bias[:, parent] += mul(t(x), passed)
    whole = dense.phi @ dense.inertia @ dense.phi_t
    for body in range(model.num_bodies):
        rows = slice(6 * body, 6 * body + 6)
        composite = whole[:, rows, rows]
        rest = mul(dense.phi, dense.flat(own))[:, rows]
        for child in range(model.num_bodies):
            if child != body and model.topology.support[child, body]:
                inner = slice(6 * child, 6 * child + 6)
                parent = model.parents[child]
                relative = acceleration[:, child] - mul(dense.transform[:, child], acceleration[:, parent])
                rest += mul(dense.phi[:, rows, inner] @ whole[:, inner, inner], relative)
        close(mul(composite, acceleration[:, body]) + rest, forces[:, body], 1e-9)


@pytest.mark.spec("RBDA-7.1-ABEOM", "RBDA-7.2.1-PROJ", "RBDA-7.1-PROPS")
def test_handle_of_a_floating_tree():
    """Push the root: it answers with the inverse of its articulated inertia, whatever else happens."""
    model, s, y = routes.case(NAME)
    _, _, _, (_, _, _, _, root) = case()
    for state in (s, s._replace(v=0 * s.v, tau=2 * s.tau, external=-s.external)):
        base = routes.dynamics(NAME, model, *state)["fd"]
        response = np.zeros((6, 6))
        for k in range(6):
            pushed = state._replace(external=state.external.at[:, 0].add(at_anchor(model)[k]))
            response[:, k] = (routes.dynamics(NAME, model, *pushed)["fd"] - base)[0, :6]
        close(response @ root, np.eye(6), 1e-9)
    # By projection: I^A = (J H^-1 J^T)^-1, p^A = -I^A b^A, b^A = Jdot v - J H^-1 C.
    dense = Dense(model, s.q, s.v)
    body = 3
    j = dense.jacobians[:, 6 * body : 6 * body + 6]
    close(np.linalg.inv(y["mass"])[0, :6, :6] @ root, np.eye(6), 1e-9)
    compliance = j @ y["inverse"] @ t(j)
    close(compliance, t(compliance), 1e-10)
    apparent = np.linalg.inv(compliance)
    assert np.linalg.eigvalsh(apparent).min() > 0
    free = dense.acceleration(0 * s.a, gravity=False)[:, body] - mul(j @ y["inverse"], y["bias"] - np.asarray(s.tau))
    acceleration = dense.acceleration(y["fd"], gravity=False)[:, body]
    close(mul(apparent, acceleration) - mul(apparent, free), 0 * free, 1e-8)


@pytest.mark.spec("RBDA-7.1-INV")
def test_grounded_handles_have_a_compliance_always():
    model, s, y = routes.case("arm")
    dense = Dense(model, s.q, s.v)
    for body in range(model.num_bodies):
        j = dense.jacobians[:, 6 * body : 6 * body + 6]
        compliance = j @ y["inverse"] @ t(j)
        close(compliance, t(compliance), 1e-10)
        assert np.linalg.eigvalsh(compliance).min() > -1e-9 * np.abs(compliance).max()
        for k in range(len(j)):
            assert np.linalg.matrix_rank(compliance[k], tol=1e-8) == np.linalg.matrix_rank(j[k], tol=1e-8)


def turn_and_slide(q):
    """A turn about x and a slide along y: `S = [e1 e5]` at zero."""
    c, s, zero, one = jnp.cos(q[0]), jnp.sin(q[0]), 0.0 * q[0], 1.0 + 0.0 * q[0]
    rotation = jnp.stack([jnp.stack([one, zero, zero]), jnp.stack([zero, c, -s]), jnp.stack([zero, s, c])])
    return Transform(rotation, jnp.stack([zero, q[1], zero]))


@pytest.mark.spec("RBDA-7.1-EX71", "RBDA-7.2.2-ASM", "RBDA-7.1-ADD")
def test_box_and_cylinder():
    box, cylinder = dx.SpatialInertia(2.0, (0, 0, 0), (0.3,) * 3), dx.SpatialInertia(0.7, (0, 0, 0), (0.1,) * 3)
    model = (
        dx.ModelBuilder()
        .body("box", joint=dx.Free(), inertia=box)
        .body("cylinder", parent="box", joint=dx.UserJoint(turn_and_slide, 2), inertia=cylinder)
        .build()
    )
    inverse = np.asarray(dx.inverse_mass_matrix(model, dx.neutral(model)))
    close(np.linalg.inv(inverse[:6, :6]), np.diag([0.3, 0.4, 0.4, 2.7, 2.0, 2.7]), 1e-12)
    # Anything else: the assembly formula (7.19), and the sum of what two bodies on one handle would be.
    model = model.replace(com=jnp.array([[0.1, 0.2, -0.1], [0.3, 0.0, 0.2]]))
    q = dx.neutral(model).at[7:].set(jnp.array([0.6, -0.4]))
    inverse = np.asarray(dx.inverse_mass_matrix(model, q))
    dense = Dense(model, q[None], jnp.zeros((1, 8)))
    x, s = dense.transform[0, 1], dense.columns[1][0]
    i1, i2 = dense.inertia[:6, :6], dense.inertia[6:, 6:]
    i2 = x.T @ (i2 - i2 @ s @ np.linalg.solve(s.T @ i2 @ s, s.T @ i2)) @ x
    close(np.linalg.inv(inverse[:6, :6]), i1 + i2, 1e-11)

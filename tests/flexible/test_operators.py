"""The spatial operators of trees with bodies that bend, against the recursions and sums over particles."""

from __future__ import annotations

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flexible.systems import NODES, RIGID, at, floating, nodal_data, random_state

import dynax as dx

close = partial(np.testing.assert_allclose, rtol=1e-11, atol=1e-11)
NAMES = ("bus", "bus/root", "bus/tip", "wheel", "boom", "boom/root", "boom/tip")


@lru_cache(maxsize=1)
def case():
    """Blocks of three modes and six, of six, of two and six; a rigid body welded to a node; first nodes that move."""
    rng = np.random.default_rng(15)
    model = floating(nodal_data(rng, 3), nodal_data(rng, 2))
    q, v, *_ = random_state(model, rng)
    return model, q, v, dx.spatial_operators(model, q)


@pytest.mark.spec("FLEX-OPS", "OP-ABFLEX", "OP-E", "OP-PHI", "OP-H", "OP-M", "OP-F", "OP-OMEGA", "OP-LAM")
def test_operators_are_the_recursions():
    model, q, v, ops = case()

    @jax.jit
    def products(ops, v):
        dense = {name: getattr(ops, name).dense() for name in ("E_phi", "H", "M", "inverse_mass_matrix")}
        dense |= {"Lambda": ops.Lambda(*NAMES).dense()}
        at_nodes = {name: ops.B(name).dense() for name in ("bus/tip", "bus/side")}
        return dense, at_nodes, ops.phi.T @ (ops.H.T @ v), ops.J(*NAMES) @ v, ops.mass_matrix.solve(v)

    @jax.jit
    def recursions(q):
        velocities = jax.vmap(partial(dx.body_velocities, model, q), out_axes=-1)(jnp.eye(model.nv))
        return velocities, dx.forward_kinematics(model, q), dx.mass_matrix(model, q)

    dense, at_nodes, motion, seen, solved = products(ops, v)
    velocities, poses, mass = recursions(q)
    jacobians = np.concatenate([velocities[model.body_index(name)] for name in NAMES])
    assert dense["E_phi"].shape == (9 + 6 + 8, 9 + 6 + 8)
    assert not np.any(np.linalg.matrix_power(dense["E_phi"], 2))  # eq. 20: as deep as the tree
    phi = np.linalg.inv(np.eye(23) - dense["E_phi"])  # eq. 21
    close(dense["H"] @ phi @ dense["M"] @ phi.T @ dense["H"].T, mass)
    close(dense["inverse_mass_matrix"] @ mass, np.eye(model.nv))
    close(solved, np.linalg.solve(mass, v))
    close(dense["Lambda"], jacobians @ np.linalg.solve(mass, jacobians.T))
    close(seen, jacobians @ v)
    close(motion, phi.T @ dense["H"].T @ v)
    # Eq. 22: the rates of the modes are in the motion, beside that of the frame.
    close(motion[:3], v[model.v_slice("bus/modes")])
    close(motion[3:9], jacobians[:6] @ v)
    # Eq. 16: what the wheel hands to the bus goes through six numbers, A_t phi(t, wheel).
    block = dense["E_phi"][:9, 9:15]
    tip, wheel = model.body_index("bus/tip"), model.body_index("wheel")
    rotation = poses.rotation[tip].T @ poses.rotation[wheel]
    arm = poses.rotation[tip].T @ (poses.translation[wheel] - poses.translation[tip])
    skew = np.cross(np.eye(3), arm)
    shift = np.block([[rotation, -skew.T @ rotation], [np.zeros((3, 3)), rotation]])
    close(block, at_nodes["bus/tip"][:9] @ shift)
    assert np.linalg.matrix_rank(block) == 6
    # E from the boom, which bends, has no columns for its modes.
    assert not np.any(dense["E_phi"][:, 15:17])


@pytest.mark.spec("OP-BK", "OP-ABFLEX", "FLEX-MM")
def test_nodes_of_a_body_make_its_mass(rng):
    """`M_m = [Pi*; B] M_s [Pi, B*]` (eq. 23), `B` at the deformed places: all particles are nodes that one may name."""
    data = nodal_data(rng, 3)
    nodes = {f"n{k}": k for k in range(NODES)}
    builder = dx.ModelBuilder()
    builder.body("body", joint=dx.Spherical(), inertia=dx.flexible_body_from_nodes(**data, nodes=nodes))
    builder.body("tip", parent="body/n2", joint=dx.Revolute((1, 0, 0)), placement=at(0.1, 0.0, 0.0), inertia=RIGID)
    model = builder.build()
    q, *_ = random_state(model, rng)
    names = tuple(f"body/n{k}" for k in range(NODES))

    @jax.jit
    def found(q):
        ops = dx.spatial_operators(model, q)
        return ops.B(*names).dense()[:9], ops.M.dense()[:9, :9]

    picked, mass = found(q)
    particle = np.diag([0.0, 0.0, 0.0, 1.0, 1.0, 1.0])
    close(picked @ np.kron(np.diag(data["mass"]), particle) @ picked.T, mass)
    # Its last six rows are the rigid motions of the nodes.
    rigid = picked[3:].reshape(6, NODES, 6)
    eta = q[model.q_slice("body/modes")]
    for k in range(NODES):
        place = data["position"][k] + data["translation"][k] @ eta
        turned = rigid[3:, k, 3:]
        close(turned @ turned.T, np.eye(3))
        close(rigid[:3, k, 3:], -np.cross(np.eye(3), place).T @ turned)


@pytest.mark.spec("OP-ABFLEX", "OP-BK", "OP-DGK", "OP-PSI", "OP-UPS")
def test_adjoints_and_gradients_of_flexible_operators(rng):
    """<A x, y> = <x, A* y>, and the gradient through `mv` is `rmv`."""
    *_, ops = case()

    def operators(ops):
        own = {name: getattr(ops, name) for name in ("E_phi", "phi", "H", "M", "G", "K", "psi", "F", "W", "Upsilon")}
        return own | {"Omega": ops.Omega, "B": ops.B(*NAMES), "J": ops.J(*NAMES)}

    shapes = {name: a.shape for name, a in operators(ops).items()}
    xy = {name: (rng.normal(size=columns), rng.normal(size=rows)) for name, (rows, columns) in shapes.items()}

    @jax.jit
    def products(ops, xy):
        found = {}
        for name, a in operators(ops).items():
            forward, pull = jax.vjp(a.mv, xy[name][0])
            found[name] = forward, a.rmv(xy[name][1]), *pull(xy[name][1])
        return found

    for name, (forward, backward, slope) in products(ops, xy).items():
        x, y = xy[name]
        scale = np.linalg.norm(forward) * np.linalg.norm(y) + np.linalg.norm(x) * np.linalg.norm(backward)
        assert abs(forward @ y - x @ backward) < 1e-13 * scale, name
        close(slope, backward)

"""Two articulated bodies assembled across a joint in three forms, and forward dynamics by the two variants."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
import trees

import dynax as dx
from dynax.routes.assembly import (
    assembled,
    assembled_inverse,
    by_inertias,
    by_inverse_inertias,
    coupling,
    forward_dynamics_by_assembly,
    joint_acceleration,
    transmitted,
    transmitted_force,
)
from dynax.routes.handles import JointSpace, bodies

pytestmark = pytest.mark.slow

VARIANTS = ("inertia", "inverse_inertia")


def t(a):
    return np.swapaxes(a, -1, -2)


def mul(a, x):
    return np.einsum("...ij,...j->...i", a, x)


def close(a, b, tolerance=1e-10):
    a, b = np.asarray(a), np.asarray(b)
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max(initial=1.0))


def definite(rng, *shape):
    a = rng.normal(size=(*shape, 6, 9))
    return a @ t(a)


class Two:
    """Two random articulated bodies at a random joint with any bearing of its motor, several times over."""

    def __init__(self, rng, k: int, count: int = 4):
        self.i_1, self.i_2 = definite(rng, count), definite(rng, count)
        self.p_1, self.p_2, self.c, self.force = rng.normal(size=(4, count, 6))
        self.s, self.tau = rng.normal(size=(count, 6, k)), rng.normal(size=(count, k))
        # Any T_a with T_a' S = 1, and an orthonormal T.
        self.t = np.stack([np.linalg.svd(s, full_matrices=True)[0][:, k:] for s in self.s])
        plain = self.s @ np.linalg.inv(t(self.s) @ self.s)
        self.t_a = plain + self.t @ rng.normal(size=(count, 6 - k, k))
        self.active = mul(self.t_a, self.tau)

    @property
    def inverses(self):
        phi_1, phi_2 = np.linalg.inv(self.i_1), np.linalg.inv(self.i_2)
        return (phi_1, -mul(phi_1, self.p_1)), (phi_2, -mul(phi_2, self.p_2))

    def whole(self, armature=0.0):
        """All unknowns at once: accelerations of both, that of the joint and the force across it."""
        results = []
        for n in range(len(self.c)):
            s, k = self.s[n], self.s.shape[-1]
            z6, z = np.zeros((6, 6)), np.zeros((6, k))
            system = np.block(
                [
                    [self.i_1[n], z6, z, np.eye(6)],
                    [z6, self.i_2[n], z, -np.eye(6)],
                    [-np.eye(6), np.eye(6), -s, z6],
                    [z.T, z.T, np.diag(np.broadcast_to(armature, k)), s.T],
                ]
            )
            rhs = np.concatenate([self.force[n] - self.p_1[n], -self.p_2[n], self.c[n], self.tau[n]])
            results.append(np.linalg.solve(system, rhs))
        x = np.array(results)
        k = self.s.shape[-1]
        return x[:, :6], x[:, 6:12], x[:, 12 : 12 + k], x[:, 12 + k :]


@jax.jit
def three_forms(i_1, p_1, i_2, p_2, one, two, s, t_a, tau, c, force, armature):
    """The standard form, the variants, and the joint's acceleration and force from variant 1."""
    space = JointSpace.of(s, active=t_a, armature=armature)
    active = jnp.einsum("...ij,...j->...i", t_a, tau)
    standard = assembled((i_1, p_1), (i_2, p_2), s, tau, c, armature)
    w = coupling(one[0] + two[0], space)
    first = assembled_inverse(one, two, w, active, c)
    inertia, bias = transmitted(two[0], p_2, coupling(two[0], space), active, c)
    across = transmitted_force(one, two, w, active, c, force)
    a_1 = jnp.einsum("...ij,...j->...i", one[0], force - across) + one[1]
    a_2 = jnp.einsum("...ij,...j->...i", two[0], across) + two[1]
    return standard, first, (i_1 + inertia, p_1 + bias), (a_1, a_2, across, joint_acceleration(space, a_1, a_2, c))


@pytest.mark.spec("RBDA-7.4-V1", "RBDA-7.4-V2", "RBDA-7.4-QDD", "RBDA-7.2.2-ASM")
@pytest.mark.parametrize("k", [0, 1, 3, 5])
def test_three_forms_of_assembly_agree(rng, k):
    two = Two(rng, k)
    ends = two.inverses
    for armature in (np.zeros(k), rng.uniform(0.5, 2.0, k), np.eye(k)[0] if k else np.zeros(0)):
        given = (two.i_1, two.p_1, two.i_2, two.p_2, *ends, two.s, two.t_a, two.tau, two.c, two.force)
        (inertia, bias), (phi, b), (i_2nd, p_2nd), (a_1, a_2, across, rates) = three_forms(
            *given, np.broadcast_to(armature, (4, k))
        )
        wanted = two.whole(armature)
        close(mul(np.asarray(inertia), wanted[0]) + bias, two.force)
        close(mul(np.asarray(phi), two.force) + b, wanted[0])
        close(i_2nd, inertia)
        close(p_2nd, bias)
        close(np.asarray(phi) @ np.asarray(inertia), np.broadcast_to(np.eye(6), (4, 6, 6)))
        close(b, -mul(np.asarray(phi), np.asarray(bias)))
        close(a_1, wanted[0])
        close(a_2, wanted[1])
        close(across, wanted[3])
        close(rates[:, :k], wanted[2])
        close(rates[:, k:], 0.0)


@pytest.mark.spec("RBDA-7.4-V2")
@pytest.mark.parametrize("k", [1, 2, 5])
def test_identity_of_motion_and_constraint_subspaces(rng, k):
    """I - I S (S' I S)^-1 S' I = T (T' I^-1 T)^-1 T'."""
    two = Two(rng, k)
    i, s = two.i_2, two.s
    left = i - i @ s @ np.linalg.inv(t(s) @ i @ s) @ t(s) @ i
    close(left, two.t @ np.linalg.inv(t(two.t) @ np.linalg.inv(i) @ two.t) @ t(two.t))
    close(left, coupling(jnp.asarray(np.linalg.inv(i)), JointSpace.of(s)))
    # With no rotor at all it is the limit of ever lighter ones.
    light = coupling(jnp.asarray(np.linalg.inv(i)), JointSpace.of(s, armature=np.full((4, k), 1e-9)))
    close(left, light, 1e-8)


def eliminate(rows, unknowns):
    """Gaussian elimination on blocks: rows are `({unknown: block}, right side)`, the first that can is the pivot."""
    rows = list(rows)
    for unknown in unknowns:

        def pivots(row, unknown=unknown):
            block = row[0].get(unknown)
            return block is not None and block.shape[0] == block.shape[1] and np.linalg.cond(block) < 1e9

        pivot = next(row for row in rows if pivots(row))
        rows = [row for row in rows if row is not pivot]
        inverse = np.linalg.inv(pivot[0][unknown])
        for n, (blocks, right) in enumerate(rows):
            if unknown in blocks:
                factor = blocks[unknown] @ inverse
                kept = {name: block for name, block in blocks.items() if name != unknown}
                for name, block in pivot[0].items():
                    if name != unknown:
                        kept[name] = kept.get(name, 0.0) - factor @ block
                rows[n] = kept, right - factor @ pivot[1]
    return rows


@pytest.mark.spec("RBDA-7.4-SYS")
@pytest.mark.parametrize("order", [("f_J", "a_2", "lambda", "qdd"), ("a_2", "f_J", "lambda", "qdd")])
def test_elimination_of_the_composite_equation(rng, order):
    """Five blocks of unknowns, five of equations: what is left between `f` and `a_1` are the assembly formulas."""
    two = Two(rng, 2, count=1)
    s, base, motor = two.s[0], two.t[0], two.t_a[0]
    eye, known = np.eye(6), lambda x: np.concatenate([np.zeros((len(x), 6)), x[:, None]], 1)
    joint = [
        ({"f_J": eye, "lambda": -base}, known(motor @ two.tau[0])),
        ({"a_2": base.T, "a_1": -base.T}, known(base.T @ two.c[0])),
        ({"a_2": motor.T, "a_1": -motor.T, "qdd": -motor.T @ s}, known(motor.T @ two.c[0])),
    ]
    # The right sides have a column for each component of `f`, and one for what is known.
    handle = ({"a_1": two.i_1[0], "f_J": eye}, np.concatenate([eye, -two.p_1[0][:, None]], 1))
    other = ({"a_2": two.i_2[0], "f_J": -eye}, known(-two.p_2[0]))
    ((blocks, right),) = eliminate([*joint, other, handle], order)
    inertia, bias = assembled(
        (two.i_1, two.p_1), (two.i_2, two.p_2), jnp.asarray(two.s), jnp.asarray(two.tau), jnp.asarray(two.c)
    )
    assert set(blocks) == {"a_1"}
    close(blocks["a_1"], inertia[0])
    close(right[:, :6], eye)
    close(-right[:, 6], bias[0])
    # The same with inverse inertias, one of them singular: variant 1.
    (phi_1, b_1), (phi_2, b_2) = ((phi[0], b[0]) for phi, b in two.inverses)
    for grounded in (False, True):
        if grounded:
            phi_1 = np.zeros((6, 6))
        handle = ({"a_1": eye, "f_J": phi_1}, np.concatenate([phi_1, b_1[:, None]], 1))
        other = ({"a_2": eye, "f_J": -phi_2}, known(b_2))
        ((blocks, right),) = eliminate([*joint, other, handle], order)
        space = JointSpace.of(s, active=motor)
        one, end = (jnp.asarray(phi_1), jnp.asarray(b_1)), (jnp.asarray(phi_2), jnp.asarray(b_2))
        phi, b = assembled_inverse(one, end, coupling(one[0] + end[0], space), two.active[0], two.c[0])
        response = np.linalg.solve(blocks["a_1"], right)
        close(response[:, :6], phi)
        close(response[:, 6], b)


@pytest.mark.spec("RBDA-7.1-EX71")
def test_box_and_cylinder_in_three_forms():
    """A box, and a cylinder that turns about x and slides along y of it: `S = [e1 e5]`."""
    box, cylinder = np.diag([0.3] * 3 + [2.0] * 3), np.diag([0.1] * 3 + [0.7] * 3)
    expected = np.diag([0.3, 0.4, 0.4, 2.7, 2.0, 2.7])
    s, rest = jnp.eye(6)[:, jnp.array([0, 4])], jnp.zeros(6)
    space = JointSpace.of(s)
    inertia, _ = assembled((box, rest), (cylinder, rest), s, rest[:2], rest)
    close(inertia, expected, 1e-15)
    phi_1, phi_2 = np.linalg.inv(box), np.linalg.inv(cylinder)
    close(box + transmitted(phi_2, rest, coupling(jnp.asarray(phi_2), space), rest, rest)[0], expected, 1e-15)
    phi, _ = assembled_inverse((phi_1, rest), (phi_2, rest), coupling(jnp.asarray(phi_1 + phi_2), space), rest, rest)
    close(phi, np.linalg.inv(expected), 1e-14)


@jax.jit
def both_and_recursion(model, q, v, tau, external):
    def one(q, v, tau, external):
        b = bodies(model, q, v, tau, external)
        variants = by_inertias(model.topology, b), by_inverse_inertias(model.topology, b)
        return *variants, dx.forward_dynamics(model, q, v, tau, external)

    return jax.vmap(one)(q, v, tau, external)


@pytest.mark.spec("RBDA-7.4-V1", "RBDA-7.4-V2", "RBDA-7.4-QDD")
def test_forward_dynamics_by_either_variant():
    """Several bodies on one, with and without rotors, on a floating base; in motion and at rest."""
    model, s = trees.tree("screws"), trees.states(trees.tree("screws"))
    still = s._replace(q=jnp.stack([dx.neutral(model)] * 4), v=0 * s.v)
    for state in (s, still):
        for at in (model, model.replace(armature=0 * model.armature)):
            second, first, wanted = both_and_recursion(at, state.q, state.v, state.tau, state.external)
            close(second, wanted)
            close(first, wanted)


def test_derivatives_of_the_variants(rng):
    """By state and by leaves, armatures that are zero among them, at rest too: against differences."""
    model = trees.build(((-1, dx.Revolute((0.0, 1.0, 0.5))), (0, dx.UserJoint(trees.bent_screw, 2))))
    s = trees.states(model, count=1)
    first, second = jnp.asarray(rng.normal(size=(2, model.nv)))

    @jax.jit
    @jax.value_and_grad
    def variants(x):
        mass, armature, *state = x
        b = bodies(model.replace(mass=mass, armature=armature), *state, None)
        return first @ by_inverse_inertias(model.topology, b) + second @ by_inertias(model.topology, b)

    h = 2e-4
    for q, v in ((s.q[0], s.v[0]), (dx.neutral(model), 0 * s.v[0])):
        x = (model.mass, 0 * model.armature, q, v, s.tau[0])
        along = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape)), x)
        f = {k: variants(jax.tree.map(lambda a, d, k=k: a + k * h * d, x, along))[0] for k in (-2, -1, 1, 2)}
        slope = sum(jax.tree.map(jnp.vdot, variants(x)[1], along))
        close(slope, (8 * (f[1] - f[-1]) - (f[2] - f[-2])) / (12 * h), 1e-9)


def test_what_the_variants_take_and_refuse():
    model = problems.double_pendulum().model
    state = jnp.zeros(2), jnp.zeros(2), jnp.zeros(2)
    with pytest.raises(ValueError, match="unknown variant 'phi'"):
        forward_dynamics_by_assembly(model, *state, variant="phi")  # type: ignore[arg-type]
    for variant in VARIANTS:
        single = (jax.ShapeDtypeStruct((2,), jnp.float32),) * 3
        found = jax.eval_shape(partial(forward_dynamics_by_assembly, model, variant=variant), *single)
        assert found.dtype == jnp.float32
        with pytest.raises(ValueError, match="body 'upper'"):
            forward_dynamics_by_assembly(dx.simplify_inertias(model), *state, variant=variant)

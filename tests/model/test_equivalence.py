"""Dynamically equivalent inertias and augmented bodies (section 9.7)."""

from __future__ import annotations

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees
from dense import Dense, crf, inertia_matrix, motion_transform, skew

import dynax as dx
from dynax.spatial import RigidInertia


def close(a, b, tolerance=1e-11):
    a, b = np.asarray(a), np.asarray(b)
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max(initial=1.0))


# What passes through a joint ---------------------------------------------------------------------------------------


@pytest.mark.spec("RBDA-9.7-TABLE")
def test_table_of_transferable_inertias(rng):
    m, cz, i = rng.normal(size=3)
    pair = np.zeros((6, 6))
    pair[[0, 1], [0, 1]] = i
    pair[[0, 4, 1, 3], [4, 0, 3, 1]] = -m * cz, -m * cz, m * cz, m * cz
    pair[[3, 4, 5], [3, 4, 5]] = m
    by_hand = {
        dx.Revolute(): pair,
        dx.Spherical(): np.diag([0, 0, 0, m, m, m]),
        dx.Helical(): np.diag([i, i, 0, 0, 0, 0]),
        dx.Cylindrical(): np.diag([i, i, 0, 0, 0, 0]),
        dx.Universal(): np.diag([0, 0, 0, m, m, m]),
        dx.Free(): np.zeros((6, 6)),
        dx.Driven(dx.Revolute(), trees.swing): np.zeros((6, 6)),
    }
    values = np.array([m, 0, 0, m * cz, i])
    for joint, expected in by_hand.items():
        basis = dx.transferable_inertias(joint)
        parameters = values[np.argmax(basis, axis=1)] @ basis if len(basis) else np.zeros(10)
        close(RigidInertia.from_parameters(parameters).matrix, expected, 1e-15)
    assert np.array_equal(dx.transferable_inertias(dx.Prismatic()), np.eye(10)[4:])
    assert np.array_equal(dx.transferable_inertias(dx.Weld()), np.eye(10))


@pytest.mark.spec("RBDA-9.7-DEQ", "RBDA-9.7-TABLE")
def test_conditions_hold_for_every_joint(rng):
    """`D S = 0`, `D = X_J' D X_J` and `S' (v x* D v) = 0` (eq. 9.30), wherever the joint stands."""
    for joint in {joint.canonical for _, joint in trees.MIXED}:
        basis = dx.transferable_inertias(joint)
        if not len(basis):
            continue
        parameters = rng.normal(size=len(basis)) @ basis
        d = np.asarray(RigidInertia.from_parameters(parameters).matrix)
        q = joint.normalize(tuple(jnp.asarray(x) for x in rng.normal(size=joint.nq)))
        own, time = tuple(jnp.asarray(x) for x in rng.uniform(0.2, 2.0, len(joint.parameters))), jnp.asarray(0.0)
        rotation, translation = joint.pose(q, own, time)
        x = motion_transform(np.asarray(rotation.array), np.asarray(translation.array))
        close(x.T @ d @ x, d, 1e-13)
        v = rng.normal(size=6)
        for column in joint.columns(q, own, time):
            s = np.asarray(column.array)
            close(d @ s, 0.0, 1e-13)
            close(s @ crf(v) @ d @ v, 0.0, 1e-13)


# Whole robots ------------------------------------------------------------------------------------------------------

FOREST = (
    (-1, dx.Free()),
    (0, dx.Revolute((0.3, 1.0, 0.0))),
    (1, dx.Prismatic((1.0, 0.0, 1.0))),
    (2, dx.Spherical()),
    (1, dx.Revolute((0.0, 1.0, 1.0))),
    (-1, dx.Revolute((1.0, 1.0, 0.0))),
    (5, dx.Revolute((0.0, 1.0, 0.0))),
)
#: How many parameters each body can be without.
FEWER = (0, 3, 6, 1, 3, 3, 3)


@lru_cache
def case():
    return trees.build(FOREST), trees.states(trees.build(FOREST), count=6)


@jax.jit
def dynamics(model, state):
    def one(q, v, a, tau, external):
        both = dx.inverse_dynamics(model, q, v, a, external), dx.forward_dynamics(model, q, v, tau, external)
        return *both, dx.inverse_dynamics_regressor(model, q, v, a)

    return jax.vmap(one)(*state)


def weightless(model, body):
    """The model with a body without mass."""
    return model.replace(**{name: getattr(model, name).at[body].set(0.0) for name in ("mass", "com", "inertia")})


def numbers(model, other):
    """The model with the inertias of another: the same compiled program."""
    return model.replace(**{name: getattr(other, name) for name in ("mass", "com", "first_moment", "inertia")})


@pytest.mark.spec("RBDA-9.7-DEQ")
def test_inertia_passed_between_two_bodies_does_not_show(rng):
    """Even where a mass becomes negative: `I_i -= D`, `I_parent += D`."""
    model, s = case()
    id_before, fd_before, _ = dynamics(model, s)
    for body, parent in enumerate(model.parents):
        basis = dx.transferable_inertias(model.joints[body])
        if parent < 0 or not len(basis):
            continue
        passed = RigidInertia.from_parameters(5.0 * rng.normal(size=len(basis)) @ basis)
        hinge = jax.tree.map(lambda x, body=body: x[body], model.hinges)
        placement = jax.tree.map(lambda x, body=body: x[body], model.placements)
        own = (hinge @ passed).parameters
        parameters = (
            dx.inertial_parameters(model).at[body].add(-own).at[parent].add((placement @ hinge @ passed).parameters)
        )
        other = dx.with_inertial_parameters(model, parameters)
        tau, a, _ = dynamics(numbers(model, other), s)
        close(tau, id_before)
        close(a, fd_before, 1e-10)
        assert np.abs(parameters - dx.inertial_parameters(model)).max() > 0.1


@pytest.mark.spec("RBDA-9.7-SIMPLIFY")
def test_simplified_models_move_alike():
    model, s = case()
    for at in (weightless(model, 1), model):  # a link without mass gets moments from those it carries
        tau, a, regressor = dynamics(at, s)
        simple = dx.simplify_inertias(at)
        simple_tau, simple_a, _ = dynamics(numbers(model, simple), s)
        close(simple_tau, tau)
        close(simple_a, a, 1e-10)
    rigid = regressor @ dx.inertial_parameters(model).reshape(-1)
    close(regressor @ dx.minimal_inertial_parameters(model, frame="body").reshape(-1), rigid)
    # Rotors, dampers and all that is not inertia stay.
    for leaf in ("armature", "damping", "stiffness", "gravity", "joint_parameters"):
        assert getattr(simple, leaf) is getattr(model, leaf)
    np.testing.assert_array_equal(simple.mass == 0.0, dx.vanishing_parameters(model)[:, 0])
    named = [finding.element for finding in simple.report]
    assert named == [f"body 'b{k}'" for k in range(7)]
    assert dx.simplify_inertias(simple).report == simple.report


@pytest.mark.spec("RBDA-9.7-SIMPLIFY")
def test_pattern_of_zeros():
    """A revolute joint leaves no mass, no moment along z and none about x; a slide no moments; a ball no mass."""
    model, _ = case()
    zero = dx.vanishing_parameters(model)
    assert tuple(zero.sum(1)) == FEWER
    assert list(np.flatnonzero(zero[1])) == [0, 3, 4]
    assert list(np.flatnonzero(zero[2])) == [4, 5, 6, 7, 8, 9]
    assert list(np.flatnonzero(zero[3])) == [0]
    left = np.asarray(dx.minimal_inertial_parameters(model, frame="joint"))
    assert np.all(left[zero] == 0.0)
    assert np.all(left[~zero] != 0.0)
    # The same in the model, to rounding.
    simple = dx.simplify_inertias(model)
    pose = jax.tree.map(np.asarray, model.hinges)
    numbers = [np.asarray(getattr(simple, name)) for name in ("mass", "com", "inertia", "first_moment")]
    for body in range(model.num_bodies):
        x = motion_transform(pose.rotation[body], pose.translation[body])
        own = np.linalg.inv(x).T @ inertia_matrix(*(leaf[body] for leaf in numbers)) @ np.linalg.inv(x)
        found = np.array([own[5, 5], own[2, 4], own[0, 5], own[1, 3], *own[[0, 1, 2, 0, 1, 0], [0, 1, 2, 1, 2, 2]]])
        close(found[zero[body]], 0.0, 1e-14)


@pytest.mark.spec("RBDA-9.7-DEQ")
def test_what_is_left_can_be_identified(rng):
    """In a floating tree the zeros are all there is to lose: as many combinations can be measured as are left."""
    model, _ = case()
    floating = slice(0, 50)  # the first five bodies
    states = [trees.states(model, count=6, seed=seed) for seed in (0, 1, 2)]
    rows = np.concatenate([np.asarray(dynamics(model, state)[2]).reshape(-1, 70) for state in states])[:, floating]
    rows = rows / np.linalg.norm(rows, axis=0)
    assert np.linalg.matrix_rank(rows, tol=1e-9) == 50 - sum(FEWER[:5])


def test_simplification_follows_the_leaves(rng):
    """Under `jit`, `vmap` and derivatives; where there is no mass at all, too."""
    model, _ = case()
    zero = 4
    light = weightless(model, zero)
    weight = jnp.asarray(rng.normal(size=10 * model.num_bodies))

    @jax.jit
    @jax.vmap
    @jax.value_and_grad
    def cost(x):
        simple = dx.simplify_inertias(model.replace(mass=x[0], com=x[1], inertia=x[2]))
        return weight @ dx.inertial_parameters(simple).reshape(-1)

    h = 1e-5
    for at in (model, light):
        x = (at.mass, at.com, at.inertia)
        along = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape)), x)
        three = jax.tree.map(lambda a, d: jnp.stack([a, a + h * d, a - h * d]), x, along)
        values, slopes = cost(three)
        close(
            sum(jnp.vdot(a[0], d) for a, d in zip(slopes, along, strict=True)), (values[1] - values[2]) / (2 * h), 1e-8
        )
        assert all(np.all(np.isfinite(a)) for a in slopes)


def test_frames_are_chosen_by_name():
    with pytest.raises(ValueError, match="must be 'body' or 'joint', got 'world'"):
        dx.minimal_inertial_parameters(case()[0], frame="world")  # type: ignore[arg-type]


# Augmented bodies --------------------------------------------------------------------------------------------------

BALLS = (
    (0, dx.Revolute((0.3, 1.0, 0.0))),
    (1, dx.Spherical()),
    (0, dx.Universal()),
    (3, dx.Revolute((0.0, 1.0, 1.0))),
    (1, dx.Gimbal("zyx")),
)


class Jointed:
    """What the method of barycentres needs: positions of joints, and augmented bodies, in world axes."""

    def __init__(self, root: dx.AbstractJoint):
        self.model = trees.build(((-1, root), *BALLS), passive=False)
        s = trees.states(self.model, count=1)
        dense = Dense(self.model, s.q, s.v)
        self.mass_matrix = dense.mass_matrix[0]
        self.r, n = dense.rotation[0], self.model.num_bodies
        place = dense.position[0]
        self.turning = np.array([self.r[k] @ dense.jacobians[0, 6 * k : 6 * k + 3] for k in range(n)])
        self.moving = np.array([self.r[k] @ dense.jacobians[0, 6 * k + 3 : 6 * k + 6] for k in range(n)])
        self.joint = place + np.einsum("nij,nj->ni", self.r, np.asarray(self.model.hinges.translation))
        p = np.asarray(dx.augmented_bodies(self.model))
        self.mass = p[:, 0]
        self.com = place + np.einsum("nij,nj->ni", self.r, p[:, 1:4] / p[:, :1])
        about_com = (dx.SpatialInertia.from_parameters(own).inertia for own in p)
        self.inertia = np.array([r @ tensor @ r.T for r, tensor in zip(self.r, about_com, strict=True)])

    def towards(self, body, other):
        """The joint by which `other` hangs together with `body`."""
        support = self.model.topology.support
        if not support[other, body]:
            return self.joint[body]
        (child,) = (c for c in self.model.topology.children[body] if support[other, c])
        return self.joint[child]


@pytest.mark.spec("RBDA-9.7-AUGMENTED")
def test_barycentres_of_a_floating_tree():
    """2 T = M v_c^2 + sum w_i.K_i w_i - M sum (w_i x d_ij).(w_j x d_ji), all bodies with the mass of the whole."""
    t = Jointed(dx.Free())
    n, total = t.model.num_bodies, float(np.sum(t.model.mass))
    close(t.mass, total, 1e-14)
    own = np.asarray(t.model.mass)[:, None, None]
    arms = np.einsum("nij,nj->ni", t.r, np.asarray(t.model.com))
    moved = t.moving - np.array([skew(arm) @ w for arm, w in zip(arms, t.turning, strict=True)])
    centre = (own * moved).sum(0) / total
    h = total * centre.T @ centre
    for i in range(n):
        h = h + t.turning[i].T @ t.inertia[i] @ t.turning[i]
        for j in range(n):
            if i != j:
                d_ij, d_ji = t.towards(i, j) - t.com[i], t.towards(j, i) - t.com[j]
                h = h - total * (skew(d_ij) @ t.turning[i]).T @ (skew(d_ji) @ t.turning[j])
    close(h, t.mass_matrix)


@pytest.mark.spec("RBDA-9.7-AUGMENTED")
def test_augmented_bodies_on_the_ground():
    """2 T = sum w_i.K_i w_i about the joints + 2 sum (w_i x d_ij).(w_j x m_j r_j) over carriers `i` of `j`."""
    t = Jointed(dx.Revolute((0.0, 1.0, 0.4)))
    n, support = t.model.num_bodies, t.model.topology.support
    close(t.mass, support.T @ np.asarray(t.model.mass), 1e-14)
    h = np.zeros_like(t.mass_matrix)
    for j in range(n):
        moment = skew(t.mass[j] * (t.com[j] - t.joint[j]))
        inertia = t.inertia[j] + moment @ moment.T / t.mass[j]
        h = h + t.turning[j].T @ inertia @ t.turning[j]
        for i in np.flatnonzero(support[j]):
            if i != j:
                cross = (skew(t.towards(i, j) - t.joint[i]) @ t.turning[i]).T @ moment @ t.turning[j]
                h = h + cross + cross.T
    close(h, t.mass_matrix)


def test_slides_cannot_be_augmented():
    model, _ = case()
    with pytest.raises(ValueError, match=r"joint 'b2_joint'.*no point that is fixed"):
        dx.augmented_bodies(model)

"""The contract of nodes: a kind that dynax does not know stands in a tree, and no algorithm is told."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx
from dynax.algorithms.articulated import Tree, recursion
from dynax.algorithms.factor import factorized, log_det, solve
from dynax.bodies.base import free_bases
from dynax.bodies.hinge import slot_rows
from dynax.bodies.node import Node
from dynax.spatial import Force, Motion, RigidInertia, Sym3, Vec3
from dynax.sweep import EXECUTIONS, walk
from dynax.tree.bodies import body_force, net_forces, world_inertias
from dynax.tree.kinematics import kinematics
from dynax.tree.nodes import Load, NodeOrder
from dynax.tree.setup import setup

AXIS, REST = np.array([0.6, 0.0, 0.8]), np.array([0.1, -0.2, 0.3])
MASS, STIFFNESS = 0.7, 40.0
INERTIA = dx.SpatialInertia(1.3, (0.1, 0.05, -0.2), (0.2, 0.3, 0.25))


class SprungBody(NamedTuple):
    """A body on a hinge, with a mass inside that slides against a spring: two freedoms, and one port, the body."""

    slide: Motion
    """Of the mass in its body, at the body's joint."""
    inertia: RigidInertia
    """Of the mass, about the body's joint."""

    @staticmethod
    def at(rotation, x) -> SprungBody:
        point = rotation @ Vec3.from_array(jnp.asarray(REST) + jnp.asarray(AXIS) * x)
        still = Vec3.zero(point.x)
        inertia = RigidInertia.from_com(jnp.asarray(MASS), point, Sym3.zero(point.x))
        return SprungBody(Motion(still, rotation @ Vec3.from_array(jnp.asarray(AXIS))), inertia)

    def quantities(self, hinge: Motion, offset: Vec3) -> tuple:
        """`M_bb, M_bx, M_xx` of the mass, about the joint of the body that carries the node."""
        columns = (hinge, self.slide)
        images = [self.inertia @ column for column in columns]
        mass = jnp.stack([jnp.stack([column.dot(image) for image in images]) for column in columns])
        return (
            self.inertia.articulated().shift_to_parent(offset),
            rows(*(i.shift_to_parent(offset) for i in images)),
            mass,
        )

    def force(self, body: Motion, bias: Motion, rate) -> Force:
        """What the mass needs for its velocity and bias acceleration."""
        own = self.slide * rate
        velocity = body + own
        return body_force(self.inertia, velocity, bias + velocity.cross(own))


def rows(*trees):
    return jax.tree.map(lambda *a: jnp.stack(a), *trees)


def row(tree, k):
    return jax.tree.map(lambda a: a[k], tree)


def chain(*, mass: bool) -> dx.Model:
    """Three bodies on a floating one; the mass inside the second as a body of its own, or left out."""
    at = dx.Transform.from_translation
    builder = dx.ModelBuilder(gravity=(0.3, -0.2, -9.0)).body("base", joint=dx.Free(), inertia=INERTIA)
    builder.body("one", parent="base", joint=dx.Revolute((0.0, 1.0, 0.0)), placement=at((0.2, 0.1, 0.3)),
                 inertia=INERTIA, armature=0.1)  # fmt: skip
    builder.body("two", parent="one", joint=dx.Revolute((0.0, 0.0, 1.0)), placement=at((0.3, 0.0, 0.4)),
                 inertia=INERTIA, armature=0.05)  # fmt: skip
    if mass:
        builder.body("mass", parent="two", joint=dx.Prismatic(AXIS), placement=at(REST),
                     inertia=dx.SpatialInertia(MASS), stiffness=STIFFNESS)  # fmt: skip
    builder.body("three", parent="two", joint=dx.Revolute((1.0, 0.0, 0.0)), placement=at((0.1, 0.5, 0.0)),
                 inertia=INERTIA)  # fmt: skip
    return builder.build()


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_kind_of_node_of_ones_own(rng, execution):
    whole, carrier = chain(mass=True), chain(mass=False)
    q = np.array(dx.integrate(whole, dx.neutral(whole), 0.4 * rng.normal(size=whole.nv)))
    v, tau = rng.normal(size=(2, whole.nv))
    inside = whole.v_slice("mass_joint").start
    order = NodeOrder(walk((-2, 0, 1), 2, execution), np.array([[6, -1], [7, inside], [inside + 1, -1]]), np.arange(6))

    @jax.jit
    def found(q, v, tau):
        x, rate = q[whole.q_slice("mass_joint")][0], v[inside]
        q, v = jnp.delete(q, whole.q_slice("mass_joint").start), jnp.delete(v, inside)
        s = setup(carrier, q, v, execution)
        kin = kinematics(carrier, s, v, accelerations=True, gravity=True)
        inertias = world_inertias(s, kin)
        forces = net_forces(s, kin, inertias, None)
        hinges, (_, two, _) = slot_rows(carrier, s, kin), s.layout.slots.inverse
        column = hinges.column.motion()

        # Hinges in the general form: one port, and a second freedom that is none.
        still = jax.tree.map(jnp.zeros_like, column)
        columns = jax.tree.map(lambda a, b: jnp.stack([a, b], axis=1)[:, None], column, still)
        mass = jnp.stack([jnp.diag(jnp.stack([a, jnp.ones(())])) for a in hinges.armature])
        nothing = Force(still.angular, still.linear)
        coupling = jax.tree.map(lambda a: jnp.stack([a, a], axis=1), nothing)

        # The kind of one's own.
        body = SprungBody.at(row(kin.rows.rotation, two), x)
        base, along, own = body.quantities(row(column, two), row(hinges.offset, two))
        needed = body.force(row(kin.rows.velocity, two), row(kin.rows.acceleration, two), rate)
        put = lambda whole, part: jax.tree.map(lambda a, b: a.at[two].set(b), whole, part)  # noqa: E731
        node = Node(
            offset=jax.tree.map(lambda a: a[:, None], hinges.offset),
            column=columns,
            mass=put(mass, jnp.diag(jnp.stack([hinges.armature[two], jnp.zeros(())])) + own),
            port=jnp.ones((3, 1)),
            coupling=put(coupling, along),
            base=jax.tree.map(lambda b: jnp.zeros(3).at[two].set(b), base),
        )
        load = Load(
            jax.tree.map(lambda a: a[:, None], forces.rows),
            own=put(nothing, needed.shift_to_parent(row(hinges.offset, two))),
        )
        inner = jnp.zeros(whole.nv).at[inside - 1].set(row(column, two).dot(needed))
        inner = inner.at[inside].set(body.slide.dot(needed) + STIFFNESS * x)

        tree = Tree(order, node, jax.tree.map(lambda a: a[:, None], inertias.rows), free_bases(carrier, s, inertias))
        factor = factorized(tree)
        return (
            recursion(tree, load, forces.roots, tau - inner).a,
            solve(factor, jnp.eye(whole.nv)),
            log_det(factor),
        )

    a, inverse, logdet = found(q, v, tau)
    np.testing.assert_allclose(a, dx.forward_dynamics(whole, q, v, tau), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(inverse, dx.inverse_mass_matrix(whole, q), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(logdet, dx.log_determinant(whole, q), rtol=1e-12)

"""Matrices of steps, where contacts and stops move few freedoms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx
from dynax import contact as c
from dynax.contact.branching import moved_by, rows_of
from dynax.contact.grouping import Groups, groups_of
from dynax.contact.stop_rows import StopRows
from dynax.simulate import touching_problem


def pressing(wrist, stops=()):
    """An arm with limits, whose tip presses a box on the floor."""
    builder, parent, place = dx.ModelBuilder(), "world", (0, 0, 0.7)
    for k in range(3):
        builder.body(
            f"link{k}",
            parent=parent,
            joint=dx.Revolute((k % 2, 1 - k % 2, 0)),
            placement=dx.Transform.from_translation(place),
            inertia=dx.SpatialInertia.capsule(0.03, 0.1, mass=0.5),
            position_limits=(-0.05, 0.05),
        )
        parent, place = f"link{k}", (0, 0, -0.15)
    hand = dx.SpatialInertia.sphere(0.05, mass=0.3)
    builder.body("hand", parent=parent, joint=wrist, placement=dx.Transform.from_translation(place), inertia=hand)
    builder.body("box", joint=dx.Free(), inertia=dx.SpatialInertia.box((0.2, 0.2, 0.2), mass=1.0))
    floor = c.Collider("world", c.Plane(), material=c.Material(friction=0.5))
    tip, box = c.Collider("hand", c.Sphere(0.05)), c.Collider("box", c.Box((0.1, 0.1, 0.1)))
    return c.scene(builder.build(), [floor, tip, box], ignore=[("world", "hand")], stops=stops)


def test_matrices_by_groups_are_those_of_the_whole(rng):
    """Contacts with the floor and between the two, limits, a cone and a rope; no stiffness is symmetric."""
    scene = pressing(dx.Spherical(), [c.Cone("hand_joint", 0.5), c.Rope(("world", "box"), 1.0)])
    groups = groups_of(scene)
    assert groups is not None
    assert [(own.first, own.end, len(own.contacts), len(own.stops)) for own in groups.groups] == [
        (6, 12, 8, 0),
        (0, 12, 1, 2),
    ]
    assert groups.freedoms == (0, 1, 2)
    touched, stopped = moved_by(scene)
    jacobian = rng.normal(size=(9, 3, 12, 4)) * touched[:, None, :, None]
    signs, others = rng.choice([-1.0, 1.0], size=(3, 4)), rng.normal(size=(2, 12, 4)) * stopped[3:, :, None]
    rows = StopRows(groups.freedoms, jnp.asarray(signs), jnp.asarray(others))
    stops, inertia = np.array(rows.dense), rng.normal(size=(12, 12, 4))
    np.testing.assert_array_equal(stops != 0, np.broadcast_to(stopped[..., None], stops.shape))
    stiffness = rng.normal(size=(14, 3, 3, 4))
    parted = groups.parted(jnp.asarray(inertia), jnp.asarray(jacobian), rows)
    found = groups.matrix(parted, jnp.asarray(stiffness))
    whole = inertia + np.einsum("kaib,kacb,kcjb->ijb", jacobian, stiffness[:9], jacobian)
    whole += np.einsum("kib,kb,kjb->ijb", stops, stiffness[9:, 2, 2], stops)
    np.testing.assert_allclose(found, whole, rtol=0, atol=1e-12)


def test_no_groups_where_all_rows_move_all():
    """One box on the floor."""
    builder = dx.ModelBuilder()
    builder.body("box", joint=dx.Free(), inertia=dx.SpatialInertia.box((0.2, 0.2, 0.2), mass=1.0))
    box = c.Collider("box", c.Box((0.1, 0.1, 0.1)))
    assert groups_of(c.scene(builder.build(), [c.Collider("world", c.Plane()), box])) is None


def test_steps_are_by_groups(rng, monkeypatch):
    """Velocities after a step of `Touching` in a batch, with corners that stick and slide, a tip that presses and
    limits that do: by groups, and those of the whole."""
    scene, size, asked = pressing(dx.Revolute((1, 0, 0))), 32, []
    assert rows_of(scene) is None

    class Told(Groups):
        """Groups that are like no others, and so of a step that was not traced before."""

        def solve(self, parted, stiffness, b):
            asked.append(stiffness.shape)
            return super().solve(parted, stiffness, b)

    groups = groups_of(scene)
    assert groups is not None
    groups = Told(groups.contacts, groups.groups, groups.freedoms)
    q = np.tile(dx.neutral(scene.model), (size, 1))
    q[:, :3] = rng.uniform(-0.06, 0.06, size=(size, 3))
    q[:, scene.model.q_slice("box_joint").start + 2] = rng.uniform(0.098, 0.102, size=size)
    v = rng.normal(size=(size, scene.nv))

    def after(most, groups):
        """`most` contacts: all, but another number is another step."""
        monkeypatch.setattr(touching_problem, "groups_of", lambda scene: groups)
        method = dx.simulate.Touching(most=most)
        step = jax.vmap(lambda q, v: method.step(scene, q, v, jnp.zeros(scene.nv), jnp.asarray(0.002))[1])
        return jax.jit(step)(q, v)

    whole = after(101, None)
    assert not asked
    by_groups = after(102, groups)
    assert asked
    assert np.abs(whole - v).max() > 0.1
    np.testing.assert_allclose(by_groups, whole, atol=1e-9)

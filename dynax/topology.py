"""The static part of a model: who carries whom, by which joint, and every index an algorithm needs.

A `Topology` is hashable and holds no numbers that could vary, so it is part of the compiled program; models that differ
only in parameters share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from dynax.joints import AbstractJoint, Free


class Topology:
    """A tree of bodies.

    **Arguments:**

    - `parents`: the parent of each body, `-1` for the world; parents come before their children.
    - `joints`: the joint of each body, without axes and parameters (`AbstractJoint.canonical`).
    """

    def __init__(self, parents: Sequence[int], joints: Sequence[AbstractJoint]):
        self.parents = tuple(int(p) for p in parents)
        self.joints = tuple(joints)
        if len(self.parents) != len(self.joints):
            raise ValueError(f"{len(self.parents)} parents for {len(self.joints)} joints")
        for body, parent in enumerate(self.parents):
            if not -1 <= parent < body:
                raise ValueError(f"body {body} has parent {parent}: parents must come before their children")
        self._hash = hash((self.parents, self.joints))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Topology) or self._hash != other._hash:
            return False
        return self.parents == other.parents and self.joints == other.joints

    def __repr__(self) -> str:
        return f"Topology({self.num_bodies} bodies, nq={self.nq}, nv={self.nv})"

    # Sizes and index ranges -------------------------------------------------------------------------------------

    @property
    def num_bodies(self) -> int:
        return len(self.parents)

    @cached_property
    def q_start(self) -> np.ndarray:
        """Where each joint's coordinates begin, `num_bodies + 1` entries."""
        return np.cumsum([0, *(joint.nq for joint in self.joints)])

    @cached_property
    def v_start(self) -> np.ndarray:
        """Where each joint's velocities begin, `num_bodies + 1` entries."""
        return np.cumsum([0, *(joint.nv for joint in self.joints)])

    @cached_property
    def parameter_start(self) -> np.ndarray:
        """Where each joint's continuous parameters begin, `num_bodies + 1` entries."""
        return np.cumsum([0, *(len(joint.parameters) for joint in self.joints)])

    @property
    def nq(self) -> int:
        return int(self.q_start[-1])

    @property
    def nv(self) -> int:
        return int(self.v_start[-1])

    @cached_property
    def body_of_velocity(self) -> np.ndarray:
        """The body each velocity coordinate belongs to, shape `(nv,)`."""
        return np.repeat(np.arange(self.num_bodies), np.diff(self.v_start))

    # Kinds of joint ----------------------------------------------------------------------------------------------

    @cached_property
    def groups(self) -> dict[AbstractJoint, np.ndarray]:
        """The bodies that hang on each kind of joint."""
        groups: dict[AbstractJoint, list[int]] = {}
        for body, joint in enumerate(self.joints):
            groups.setdefault(joint, []).append(body)
        return {joint: np.array(bodies) for joint, bodies in groups.items()}

    @cached_property
    def free_roots(self) -> np.ndarray:
        """Bodies that float freely in the world: the recursions start from them instead of from the ground."""
        return np.array(
            [
                i
                for i, (p, joint) in enumerate(zip(self.parents, self.joints, strict=True))
                if p < 0 and joint == Free()
            ],
            dtype=int,
        )

    @cached_property
    def carried(self) -> np.ndarray:
        """All other bodies, parents first."""
        return np.setdiff1d(np.arange(self.num_bodies), self.free_roots)

    @cached_property
    def all_screws(self) -> bool:
        """Whether every carried body hangs on a joint with one freedom, a screw along its own z."""
        return all(self.joints[body].screw is not None for body in self.carried)

    @cached_property
    def all_revolute(self) -> bool:
        return all(self.joints[body].screw == (1.0, 0.0) and not self.joints[body].parameters for body in self.carried)

    @cached_property
    def all_add(self) -> bool:
        """Whether `integrate` of every joint is a sum."""
        return all(joint.adds for joint in self.joints)

    # Trees the sweeps walk ---------------------------------------------------------------------------------------

    @cached_property
    def base_of(self) -> np.ndarray:
        """For each body the base its parent is, 0 the world and 1, 2, ... the free roots, or -1."""
        base = np.full(self.num_bodies, -1)
        base[self.free_roots] = np.arange(len(self.free_roots)) + 1
        return base

    @cached_property
    def carried_parents(self) -> tuple[int, ...]:
        """The parents of the carried bodies among them; `-1 - b` where the parent is base `b`."""
        position = {int(body): k for k, body in enumerate(self.carried)}
        parents = []
        for body in self.carried:
            parent = self.parents[body]
            parents.append(position[parent] if parent in position else -1 - (0 if parent < 0 else self.base_of[parent]))
        return tuple(int(p) for p in parents)

    @cached_property
    def slots(self) -> Slots:
        """The carried tree with one row per motion column."""
        return Slots(self)

    # Relations ---------------------------------------------------------------------------------------------------

    @cached_property
    def support(self) -> np.ndarray:
        """`support[i, j]`: whether body `j` is body `i` or one of its ancestors (the set kappa), shape `(n, n)`."""
        relation = np.eye(self.num_bodies, dtype=bool)
        for body, parent in enumerate(self.parents):
            if parent >= 0:
                relation[body] |= relation[parent]
        return relation

    @cached_property
    def velocity_support(self) -> np.ndarray:
        """`[i, j]`: whether the body of velocity `j` carries (or is) the body of velocity `i`, shape `(nv, nv)`."""
        return self.support[np.ix_(self.body_of_velocity, self.body_of_velocity)]

    @cached_property
    def first_of_tree(self) -> np.ndarray:
        """For each velocity coordinate the first one of its tree, shape `(nv,)`."""
        if not self.nv:
            return np.zeros(0, dtype=int)
        root = np.argmax(self.support, axis=1)[self.body_of_velocity]  # the first body that carries it
        return np.array([int(np.argmax(root == r)) for r in root], dtype=int)

    @cached_property
    def expanded_parents(self) -> np.ndarray:
        """The parent array `lambda'` of table 6.4: the tree in which each velocity coordinate is a body of its own.

        A joint without freedoms is passed over: its successors hang on the nearest ancestor that has one.
        """
        last = {-1: -1}
        parents = np.full(self.nv, -1)
        for body, parent in enumerate(self.parents):
            previous = last[parent]
            for index in range(self.v_start[body], self.v_start[body + 1]):
                parents[index] = previous
                previous = index
            last[body] = previous
        return parents

    @cached_property
    def depths(self) -> np.ndarray:
        """How many joints lie between each body and the world, counting its own."""
        depths = np.zeros(self.num_bodies, dtype=int)
        for body, parent in enumerate(self.parents):
            depths[body] = 1 if parent < 0 else depths[parent] + 1
        return depths

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """The bodies each body carries directly (the set mu)."""
        children: list[list[int]] = [[] for _ in self.parents]
        for body, parent in enumerate(self.parents):
            if parent >= 0:
                children[parent].append(body)
        return tuple(tuple(c) for c in children)

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """The bodies that hang on the world."""
        return tuple(body for body, parent in enumerate(self.parents) if parent < 0)


class Slots:
    """The carried tree with one row per motion column: a joint with k freedoms is k hinges with nothing between them.

    The first slot of a body holds the offset from its parent, the last its inertia. A body whose joint has no freedom
    gets one slot whose column is zero.
    """

    def __init__(self, topology: Topology):
        body, column, velocity, parents, last = [], [], [], [], {}
        carried = {int(b): k for k, b in enumerate(topology.carried)}
        for k, (b, parent) in enumerate(zip(topology.carried, topology.carried_parents, strict=True)):
            previous = last[parent] if parent >= 0 else parent
            freedoms = topology.joints[b].nv
            for c in range(max(freedoms, 1)):
                parents.append(previous)
                previous = len(body)
                body.append(k)
                column.append(c)
                velocity.append(topology.v_start[b] + c if freedoms else -1)
            last[k] = previous
        self.parents = tuple(int(p) for p in parents)
        self.body = np.array(body, dtype=int)
        """The carried body, counted among them, of each slot."""
        self.column = np.array(column, dtype=int)
        self.velocity = np.array(velocity, dtype=int)
        """The velocity coordinate of each slot, -1 for a slot without freedom."""
        self.first = self.column == 0
        self.last = np.append(self.body[1:] != self.body[:-1], True) if body else np.zeros(0, dtype=bool)
        self.simple = len(body) == len(carried) and bool(np.all(self.velocity >= 0))
        """Whether slots and carried bodies are one and the same."""

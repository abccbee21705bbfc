"""Models with bodies that bend (Jain and Rodriguez, FLEX-*): what a user says, and how the tree holds it.

    builder.body("panel", parent="bus", joint=Revolute(axis), inertia=flexible_body)
    builder.body("camera", parent="panel/tip", ...)

A body that bends stands in a *skeleton*, a tree of rigid bodies, as one body for each of its places:

    panel/root   its first node, by which it is held          joint `panel_joint`, the user's
    panel        its own frame, which mode shapes refer to    joint `panel/modes`, its pose in the first node
    panel/tip    each other node, which may carry bodies      joint `panel/tip`, the deformed pose of the node

The last two are joints of six freedoms whose coordinates are known functions of the modes (`dynax.bodies.flexible`):

    q_skeleton = q_s(q)        v_skeleton = X(q) v        a_skeleton = X a + Xdot v        tau = X^T tau_skeleton

So a node is a body like others: it has a pose, a velocity, a Jacobian, a wrench from outside and frames on it, and the
bias of its deforming offset (`a_m` of the paper) is that of its joint. The mass of the skeleton is that of rigid bodies
alone; what bodies that bend weigh is a node's own inertia, over the motion of its frame and its modes.

`q` and `v` hold for each body the coordinates of its joint and then, of a body that bends, its modal coordinates. A
body of no modes is a rigid one, and a model without modes a plain `Model`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from dynax.flexible import FlexibleBody
from dynax.model.drawing import draw
from dynax.model.model import Model
from dynax.model.structure import Finding, close_names
from dynax.spatial import Transform
from dynax.topology import Topology


class Member(NamedTuple):
    """A body that bends, in the skeleton."""

    name: str
    modes: int
    held: int
    """The body of the skeleton that stands for its first node, -1 where that is welded to what carries it."""
    frame: int
    """The one that stands for its own frame."""
    nodes: tuple[int, ...]
    """Those that stand for its nodes after the first."""
    clamped: bool
    """Whether no mode moves its first node: its frame stands there as when undeformed."""
    loaded: tuple[int, ...]
    """Those of its places that have rigid bodies welded to them."""


class Places(NamedTuple):
    """Where the coordinates of the skeleton stand: in `q` (or `v`), or after all of these among those of the places."""

    q: np.ndarray
    """For each coordinate of the skeleton, shape `(nq of the skeleton,)`."""
    v: np.ndarray
    own_q: np.ndarray
    """For each entry of `q` the coordinate of the skeleton, -1 for a mode."""
    own_v: np.ndarray
    modes_q: np.ndarray
    """For each body that bends its modes in `q`, -1 for padding, shape `(bodies that bend, most modes)`."""
    modes_v: np.ndarray
    freedoms: np.ndarray
    """The skeleton's freedoms of each place: of each body its frame, then its nodes; shape `(places, 6)`."""


@lru_cache(maxsize=512)
def places(topology: Topology, members: tuple[Member, ...]) -> Places:
    modes = {member.frame: member.modes for member in members}
    order = [body for member in members for body in (member.frame, *member.nodes)]

    def of(start: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[int, int]]:
        own, first = [], {}
        for body in range(topology.num_bodies):
            if body in modes:
                first[body] = len(own)
                own += [-1] * modes[body]
            elif body not in order:
                own += range(start[body], start[body + 1])
        place = np.zeros(start[-1], dtype=int)
        place[[k for k in own if k >= 0]] = [i for i, k in enumerate(own) if k >= 0]
        for k, body in enumerate(order):
            size = start[body + 1] - start[body]
            place[start[body] : start[body + 1]] = len(own) + size * k + np.arange(size)
        return place, np.array(own, dtype=int), first

    def table(first: dict[int, int]) -> np.ndarray:
        found = np.full((len(members), max(modes.values())), -1)
        for row, member in enumerate(members):
            found[row, : member.modes] = first[member.frame] + np.arange(member.modes)
        return found

    (q, own_q, first_q), (v, own_v, first_v) = of(topology.q_start), of(topology.v_start)
    freedoms = topology.v_start[np.array(order)][:, None] + np.arange(6)
    return Places(q, v, own_q, own_v, table(first_q), table(first_v), freedoms)


@dataclass(frozen=True, eq=False, repr=False)
class FlexibleModel:
    """A model with bodies that bend, made by `dx.ModelBuilder`; `dx` functions take it in the place of a `Model`.

    `num_bodies` counts the frame and every node of a body that bends, each by its name: wrenches from outside act on
    any of them.
    """

    skeleton: Model
    """The tree of rigid bodies, joints and places; its numbers are leaves."""
    bodies: tuple[FlexibleBody, ...]
    """Those that bend, in body order; their numbers are leaves."""
    members: tuple[Member, ...]

    meanings: ClassVar[str] = "dynax.embedding"
    """Where it is said what functions of a model mean for it."""
    rows_of_blocks: ClassVar[bool] = True
    """To `dynax.compile`: what is worked on for an entry of `q` is a row of a matrix of its body's modes."""

    @property
    def places(self) -> Places:
        return places(self.skeleton.topology, self.members)

    @property
    def nq(self) -> int:
        return len(self.places.own_q)

    @property
    def nv(self) -> int:
        return len(self.places.own_v)

    @property
    def tree(self) -> Model:
        """The skeleton: of a model that is made of a tree, the tree."""
        return self.skeleton

    @property
    def name(self) -> str:
        return self.skeleton.name

    @property
    def num_bodies(self) -> int:
        return self.skeleton.num_bodies

    @property
    def body_names(self) -> tuple[str, ...]:
        return self.skeleton.body_names

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Those with coordinates in `q`, in its order; a body's modes are one: `"panel_joint"`, `"panel/modes"`."""
        nodes = {node for member in self.members for node in member.nodes}
        return tuple(name for k, name in enumerate(self.skeleton.joint_names) if k not in nodes)

    @property
    def frame_names(self) -> tuple[str, ...]:
        return self.skeleton.frame_names

    @property
    def report(self) -> tuple[Finding, ...]:
        return self.skeleton.report

    @property
    def constrained(self) -> bool:
        """Whether loops, gears or conditions tie the joints and modes together."""
        return self.skeleton.constrained

    @property
    def loop_names(self) -> tuple[str, ...]:
        return self.skeleton.loop_names

    @property
    def gravity(self) -> jax.Array:
        return self.skeleton.gravity

    @property
    def time(self) -> jax.Array:
        return self.skeleton.time

    @property
    def mass(self) -> jax.Array:
        """[kg], shape `(num_bodies,)`; that of a body that bends stands at its frame."""
        rigid, *bending = jnp.broadcast_arrays(self.skeleton.mass[..., 0], *(body.mass for body in self.bodies))
        whole = jnp.broadcast_to(self.skeleton.mass, (*rigid.shape, self.num_bodies))
        return whole.at[..., np.array([member.frame for member in self.members])].set(jnp.stack(bending, axis=-1))

    @property
    def armature(self) -> jax.Array:
        """Of the skeleton's freedoms."""
        return self.skeleton.armature

    @property
    def damping(self) -> jax.Array:
        """Of the skeleton's freedoms; that of modes is in `bodies`."""
        return self.skeleton.damping

    def q_slice(self, joint: str) -> slice:
        """Where the coordinates of a joint, or a body's modes (`"panel/modes"`), stand in `q`."""
        return self._slice(joint, self.skeleton.q_slice, self.places.q, self.places.modes_q)

    def v_slice(self, joint: str) -> slice:
        """Where the velocities of a joint, or a body's modes (`"panel/modes"`), stand in `v`, `a` and `tau`."""
        return self._slice(joint, self.skeleton.v_slice, self.places.v, self.places.modes_v)

    def _slice(self, joint: str, of_skeleton: Any, place: np.ndarray, modes: np.ndarray) -> slice:
        if joint not in self.joint_names:
            raise KeyError(close_names(joint, self.joint_names, "joint"))
        for row, member in zip(modes, self.members, strict=True):
            if self.skeleton.joint_names[member.frame] == joint:
                return slice(int(row[0]), int(row[0]) + member.modes)
        own = of_skeleton(joint)
        start = int(place[own.start]) if own.stop > own.start else 0
        return slice(start, start + own.stop - own.start)

    def body_index(self, name: str) -> int:
        """The row of a body, or of a place of one that bends; raises `KeyError` with near names."""
        return self.skeleton.body_index(name)

    def locate(self, name: str) -> tuple[int, Transform | None]:
        return self.skeleton.locate(name)

    def flexible_body(self, name: str) -> FlexibleBody:
        """The data of a body that bends; raises `KeyError` with near names."""
        names = tuple(member.name for member in self.members)
        if name not in names:
            raise KeyError(close_names(name, names, "flexible body"))
        return self.bodies[names.index(name)]

    def replace(self, *, bodies: tuple[FlexibleBody, ...] | None = None, **leaves: Any) -> FlexibleModel:
        """With leaves of the skeleton replaced, and `bodies`, the data of all bodies that bend, of the shapes here.

        What bodies that bend weigh is in `bodies`: `mass`, `com` and `inertia` are those of the rigid ones, and their
        rows of the others count for nothing. So do entries of `armature`, `damping`, `friction_loss` and `stiffness`
        for the places of bodies that bend.

        Whether a body's first node moves with its modes, and which places have a mass of their own, is looked up in
        numbers that are given here, once for all that follows; of traced ones both are taken to be so.
        """
        bodies = self.bodies if bodies is None else tuple(bodies)
        if jax.tree.structure(bodies) != jax.tree.structure(self.bodies):
            raise ValueError(f"`bodies` must be {len(self.bodies)} flexible bodies, of nodes and levels as these")
        skeleton = _as_places(self.skeleton.replace(**leaves), self.members, leaves)
        members = list(self.members)
        for k, (member, old, new) in enumerate(zip(members, self.bodies, bodies, strict=True)):
            if _are_new(_shapes(new), _shapes(old)):
                member = member._replace(clamped=_clamped(new))
            if _are_new(_weights(skeleton), _weights(self.skeleton)):
                member = member._replace(loaded=_loaded(skeleton, member.held, member.nodes))
            members[k] = member
        return FlexibleModel(skeleton, bodies, tuple(members))

    def at_time(self, time: Any) -> FlexibleModel:
        return dataclasses.replace(self, skeleton=self.skeleton.at_time(time))

    def __getattr__(self, name: str) -> Any:
        """Only what is not there is asked for here: functions of rigid trees alone ask for `topology` and the like."""
        raise AttributeError(
            f"a FlexibleModel has no {name!r}: what asks for it is for trees of rigid bodies, or for `.skeleton`"
        )

    def __repr__(self) -> str:
        bending = zip(self.members, self.bodies, strict=True)
        kinds = {m.frame: f"{m.name}/modes: {m.modes} modes, {body.level}" for m, body in bending}
        kinds |= {node: "node" for member in self.members for node in member.nodes}
        sizes = f"{self.num_bodies} bodies and nodes, {len(self.bodies)} that bend, nq={self.nq}, nv={self.nv}"
        return draw(self.skeleton.structure, self.mass, head=f"FlexibleModel {self.name!r}: {sizes}", kinds=kinds)


jax.tree_util.register_dataclass(FlexibleModel, ["skeleton", "bodies"], ["members"])


def skeleton_of(model: Model | FlexibleModel) -> Model:
    """The tree of rigid bodies that a model is, or that holds one with bodies that bend."""
    return model.skeleton if isinstance(model, FlexibleModel) else model


def entries_of(topology: Topology, members: tuple[Member, ...]) -> list[list[int]]:
    """For each body of the skeleton its entries of `v`: at the frame of a body that bends the modes, at nodes none."""
    if not members:
        return [list(range(a, b)) for a, b in pairwise(map(int, topology.v_start))]
    at = places(topology, members)
    held = {body for member in members for body in (member.frame, *member.nodes)}
    own = [
        [] if body in held else [int(j) for j in at.v[a:b]]
        for body, (a, b) in enumerate(pairwise(map(int, topology.v_start)))
    ]
    for member, modes in zip(members, at.modes_v, strict=True):
        own[member.frame] = [int(j) for j in modes[: member.modes]]
    return own


def flexible_model(skeleton: Model, bodies: dict[str, FlexibleBody]) -> FlexibleModel:
    """The model from the skeleton as a builder makes it, with the mass of the undeformed bodies at their frames and an
    inertia at the joints of their places, which what checks a tree looks at."""
    topology, index = skeleton.topology, skeleton.structure.body_index
    frames = [index[name] for name in bodies]
    members = []
    for (name, body), frame in zip(bodies.items(), frames, strict=True):
        held, nodes = index.get(f"{name}/{body.node_names[0]}", -1), topology.children[frame]
        loaded = _loaded(skeleton, held, nodes)
        members.append(Member(name, body.num_modes, held, frame, nodes, _clamped(body), loaded))
    members = tuple(members)
    return FlexibleModel(_as_places(skeleton, members, (*_WEIGHT, *_RESISTING)), tuple(bodies.values()), members)


# The rows of these leaves have so many axes.
_WEIGHT = {"mass": 0, "com": 1, "first_moment": 1, "inertia": 1}
_RESISTING = ("armature", "damping", "friction_loss", "stiffness")


def _are_new(leaves: tuple, old: tuple) -> bool:
    """Whether they are other numbers, and not what stands for them, as the axes of a `vmap` do."""
    numbers = all(isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves)
    return numbers and any(a is not b for a, b in zip(leaves, old, strict=True))


def _shapes(body: FlexibleBody) -> tuple:
    """What says how nodes move."""
    return body.node_translation, body.node_rotation, body.node_foreshortening


def _weights(skeleton: Model) -> tuple:
    return tuple(getattr(skeleton, name) for name in _WEIGHT if name != "com")


def _clamped(body: FlexibleBody) -> bool:
    shapes = _shapes(body)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in shapes):
        return False
    # Axes of a batch are in front.
    return not any(np.any(leaf[(..., 0, *[slice(None)] * axes)]) for leaf, axes in zip(shapes, (2, 2, 3), strict=True))


def _loaded(skeleton: Model, held: int, nodes: tuple[int, ...]) -> tuple[int, ...]:
    leaves = _weights(skeleton)
    unknown = any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)

    def weighs(body: int) -> bool:
        return any(np.any(leaf[(..., body, *[slice(None)] * k)]) for leaf, k in zip(leaves, (0, 1, 1), strict=True))

    return tuple(body for body in (held, *nodes) if body >= 0 and (unknown or weighs(body)))


def _as_places(skeleton: Model, members: tuple[Member, ...], leaves: Iterable[str]) -> Model:
    """With zeros for bodies that bend, in those of `leaves` that say what bodies weigh, and for the freedoms of their
    places, in those that say what joints resist."""
    frames = [member.frame for member in members]
    places = np.array([*frames, *(node for member in members for node in member.nodes)])
    modal = np.flatnonzero(np.isin(skeleton.topology.body_of_velocity, places))
    changed = {}
    for name in {*_WEIGHT, *_RESISTING} & {*leaves}:
        leaf = getattr(skeleton, name)
        if hasattr(leaf, "at"):  # not the axes of a `vmap`
            rows = (np.array(frames), *[slice(None)] * _WEIGHT[name]) if name in _WEIGHT else (modal,)
            changed[name] = leaf.at[(..., *rows)].set(0.0)
    return skeleton.replace(**changed)

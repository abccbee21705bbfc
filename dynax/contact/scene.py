"""A model and the shapes on its bodies: which pairs may touch, where, and how fast they come nearer.

What may touch is fixed when a scene is made, and each pair has a fixed number of candidates: nothing is ever sized by
how many touch. A candidate is a point on two bodies with a normal from `a` to `b` (chapter 11.3):

    zeta = n . (v_b - v_a) = t . v        t = d gap / dq        force f on b, -f on a, at the point
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from dynax.algorithms.frames import body_velocities, forward_kinematics
from dynax.contact.material import Material, pair_of
from dynax.contact.shapes import FIELDS, Box, Geometry, HeightField, Points
from dynax.contact.touch import Candidates, Posed, candidates, supported
from dynax.embedding.model import EmbeddedModel
from dynax.errors import ModelError
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.structure import WORLD
from dynax.operators.pytree import pytree_dataclass
from dynax.spatial import Transform


@dataclass(frozen=True)
class Collider:
    """A shape on a body.

    **Arguments:**

    - `on`: a body or frame of the model, or `"world"`.
    - `geometry`: `Plane`, `Sphere`, `Capsule`, `Ellipsoid`, `Box`, `Cylinder`, `Points`, `HeightField` or `Ground`.
    - `placement`: of the shape's frame in the body or frame; default its own.
    - `material`: what is not given is left to what it touches.
    - `name`: default that of the body and a number.
    """

    on: str
    geometry: Geometry
    placement: Transform = field(default_factory=Transform.identity)
    material: Material = field(default_factory=Material)
    name: str = ""


@pytree_dataclass("bodies", "names", "pairs")
class Scene:
    """A model with shapes on its bodies; made by `scene`. Numbers of shapes and materials are leaves."""

    model: Any
    shapes: tuple[Geometry, ...]
    placements: Transform
    """Of the shapes in their bodies, rows of shapes."""
    materials: tuple[Material, ...]
    bodies: tuple[int, ...]
    """Of the shapes, -1 for the world."""
    names: tuple[str, ...]
    pairs: tuple[tuple[int, int], ...]
    """Of shapes that may touch."""

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def nq(self) -> int:
        return self.model.nq

    @property
    def nv(self) -> int:
        return self.model.nv

    @property
    def num_bodies(self) -> int:
        return self.model.num_bodies

    @property
    def mass(self) -> jax.Array:
        return self.model.mass

    @property
    def time(self) -> jax.Array:
        return self.model.time

    def replace(self, **leaves: Any) -> Scene:
        """A scene whose model has some leaves replaced."""
        return dataclasses.replace(self, model=self.model.replace(**leaves))

    @property
    def groups(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Pairs of shapes of the same kinds, whose candidates are computed at once."""
        found: dict[Any, list[tuple[int, int]]] = {}
        for pair in self.pairs:
            found.setdefault(tuple(_kind(self.shapes[k]) for k in pair), []).append(pair)
        return tuple(map(tuple, found.values()))

    @property
    def candidates(self) -> tuple[tuple[int, int], ...]:
        """For each candidate the pair of shapes it belongs to."""
        found: list[tuple[int, int]] = []
        for group in self.groups:
            first, second = _posed(self, group, *_nowhere(self))
            one = jax.eval_shape(_of_group, first, second)
            found += [pair for pair in group for _ in range(one.gap.shape[1])]
        return tuple(found)

    def __repr__(self) -> str:
        return f"Scene({self.model.name!r}, {len(self.shapes)} shapes, {len(self.pairs)} pairs)"


class Touch(NamedTuple):
    """The candidates of a scene at a configuration, in the order of `scene.candidates`."""

    gap: jax.Array
    """Shape `(k,)` [m], negative where shapes overlap."""
    point: jax.Array
    """In the world, shape `(k, 3)` [m]."""
    normal: jax.Array
    """In world axes, from the first to the second of the pair, shape `(k, 3)`."""


def scene(model: Model | EmbeddedModel, colliders: Sequence[Collider], ignore: Iterable[tuple[str, str]] = ()) -> Scene:
    """Shapes on the bodies of a model, and which of them may touch.

    All pairs may but those on one body, on a body and its parent (the world is parent of none here), those whose kinds
    are both ground, and those to `ignore`, by the names of colliders or of what they are on. `ModelError` for a pair
    for which it is not known where they touch, for names that do not exist and numbers that are none.
    """
    bodies, names, placements = [], [], []
    for k, collider in enumerate(colliders):
        name = collider.name or f"{collider.on}/{k}"
        if name in names:
            raise ModelError("there are two of this name", element=f"collider {name!r}")
        try:
            body, pose = _tree(model).locate(collider.on)
        except KeyError as error:
            raise ModelError(str(error.args[0]), element=f"collider {name!r}") from None
        _check(collider, name)
        bodies.append(body)
        names.append(name)
        placements.append(collider.placement if pose is None else pose @ collider.placement)
    ignored = _ignored(colliders, names, ignore)
    parents = _tree(model).parents
    pairs = []
    for a in range(len(colliders)):
        for b in range(a + 1, len(colliders)):
            one, other = bodies[a], bodies[b]
            if one == other or (a, b) in ignored:
                continue
            if (one >= 0 and other >= 0) and (parents[one] == other or parents[other] == one):
                continue
            if not supported(colliders[a].geometry, colliders[b].geometry):
                kinds = " and a ".join(type(colliders[k].geometry).__name__ for k in (a, b))
                raise ModelError(
                    f"where a {kinds} touch is not known",
                    element=f"colliders {names[a]!r} and {names[b]!r}",
                    hint="give one as Sphere, Capsule, Box or Points, or name the pair in `ignore`",
                )
            pairs.append((a, b))
    stacked = Transform(
        np.stack([np.asarray(p.rotation) for p in placements]) if placements else np.zeros((0, 3, 3)),
        np.stack([np.asarray(p.translation) for p in placements]) if placements else np.zeros((0, 3)),
    )
    return Scene(
        model,
        tuple(jax.tree.map(jnp.asarray, collider.geometry) for collider in colliders),
        jax.tree.map(jnp.asarray, stacked),
        tuple(jax.tree.map(jnp.asarray, collider.material) for collider in colliders),
        tuple(bodies),
        tuple(names),
        tuple(pairs),
    )


def contacts(scene: Scene, q: Any) -> Touch:
    """Where the shapes of a scene may touch at `q`, shape `(nq,)`, and how far they are apart there."""
    (q,) = as_state(scene.model, q=q)
    poses = _poses(scene, q)
    found = [_of_group(*_posed(scene, group, *poses)) for group in scene.groups]
    rows = [jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), one) for one in found]
    empty = Candidates(*(jnp.zeros((0, *shape), q.dtype) for shape in ((), (3,), (3,))))
    return Touch(*jax.tree.map(lambda *x: jnp.concatenate(x), empty, *rows))


def contact_velocities(scene: Scene, touch: Touch, q: Any, v: Any) -> jax.Array:
    """Velocities of the second body relative to the first at each candidate, in world axes, shape `(k, 3)` [m/s]."""
    q, v = as_state(scene.model, q=q, v=v)
    rotation, origin = _bodies(scene, q)
    motion = jnp.concatenate([body_velocities(scene.model, q, v), jnp.zeros((1, 6), q.dtype)])

    def at(body: np.ndarray) -> jax.Array:
        arm = jnp.einsum("kij,ki->kj", rotation[body], touch.point - origin[body])
        own = motion[body, 3:] + jnp.cross(motion[body, :3], arm)
        return jnp.einsum("kij,kj->ki", rotation[body], own)

    first, second = candidate_bodies(scene)
    return at(second) - at(first)


def contact_jacobian(scene: Scene, touch: Touch, q: Any) -> jax.Array:
    """`contact_velocities` by velocity, shape `(k, 3, nv)`."""
    (q,) = as_state(scene.model, q=q)
    v = jnp.zeros(scene.model.nv, q.dtype)
    return jax.jacfwd(lambda v: contact_velocities(scene, touch, q, v))(v)


def contact_wrenches(scene: Scene, touch: Touch, q: Any, forces: jax.Array) -> jax.Array:
    """Wrenches on the bodies, `(n, 6)` as `external` takes them, of forces `(k, 3)` on the second bodies [N]."""
    (q,) = as_state(scene.model, q=q)
    rotation, origin = _bodies(scene, q)
    total = jnp.zeros((len(origin), 6), q.dtype)
    for body, force in zip(candidate_bodies(scene), (-forces, forces), strict=True):
        moment = jnp.cross(touch.point - origin[body], force)
        own = [jnp.einsum("kij,ki->kj", rotation[body], x) for x in (moment, force)]
        total = total.at[body].add(jnp.concatenate(own, axis=1))
    return total[:-1]


def candidate_bodies(scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    """The first and the second body of each candidate, -1 for the world."""
    pairs = np.array(scene.candidates, int).reshape(-1, 2)
    bodies = np.array((*scene.bodies, -1))
    return bodies[pairs[:, 0]], bodies[pairs[:, 1]]


def candidate_materials(scene: Scene, dtype: Any) -> Material:
    """What holds between the two of each pair, an entry for each candidate."""
    rows = [pair_of(scene.materials[a], scene.materials[b], dtype) for a, b in scene.candidates]
    empty = Material(*(jnp.zeros(0, dtype) for _ in range(4)))
    return jax.tree.map(lambda none, *x: jnp.stack(x) if x else none, empty, *rows)


def _tree(model: Model | EmbeddedModel) -> Model:
    return model.tree if isinstance(model, EmbeddedModel) else model


def _kind(shape: Geometry) -> Any:
    leaves, structure = jax.tree.flatten(shape)
    return structure, tuple(jnp.shape(leaf) for leaf in leaves)


def _bodies(scene: Scene, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Axes and origins of the bodies, and of the world as the last row, which -1 stands for."""
    poses = forward_kinematics(scene.model, q)
    world = jnp.eye(3, dtype=q.dtype)[None], jnp.zeros((1, 3), q.dtype)
    return jnp.concatenate([poses.rotation, world[0]]), jnp.concatenate([poses.translation, world[1]])


def _poses(scene: Scene, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Axes and origins of the shapes."""
    rotation, origin = _bodies(scene, q)
    body = np.array(scene.bodies, int)
    own = jax.tree.map(lambda x: x.astype(q.dtype), scene.placements)
    turned = jnp.einsum("kij,kj->ki", rotation[body], own.translation)
    return rotation[body] @ own.rotation, origin[body] + turned


def _nowhere(scene: Scene) -> tuple[jax.Array, jax.Array]:
    count = len(scene.shapes)
    return jnp.zeros((count, 3, 3)), jnp.zeros((count, 3))


def _posed(scene: Scene, group: Sequence[tuple[int, int]], rotation: jax.Array, origin: jax.Array) -> list[Posed]:
    """The first and the second shapes of pairs, stacked."""
    sides = []
    for side in (0, 1):
        index = [pair[side] for pair in group]
        shapes = jax.tree.map(
            lambda *x: jnp.stack([jnp.asarray(a, rotation.dtype) for a in x]), *(scene.shapes[k] for k in index)
        )
        sides.append(Posed(shapes, rotation[np.array(index)], origin[np.array(index)]))
    return sides


def _of_group(a: Posed, b: Posed) -> Candidates:
    return jax.vmap(candidates)(a, b)


def _check(collider: Collider, name: str) -> None:
    element = f"collider {name!r}"
    if not isinstance(collider.geometry, Geometry):
        raise ModelError(
            f"its geometry is {collider.geometry!r}, expected a shape such as Sphere(0.1)", element=element
        )
    for part, zero, shape in FIELDS[type(collider.geometry)]:
        if isinstance(getattr(collider.geometry, part), Tracer):
            continue
        value = np.asarray(getattr(collider.geometry, part), float)
        if value.shape != shape:
            raise ModelError(f"its {part} has shape {value.shape}, expected {shape}", element=element)
        if not np.all(np.isfinite(value)) or np.any(value < 0 if zero else value <= 0):
            raise ModelError(
                f"its {part} is {value}, expected {'0 or more' if zero else 'more than 0'}", element=element
            )
    if isinstance(collider.geometry, Points | HeightField):
        part, shape = ("points", (None, 3)) if isinstance(collider.geometry, Points) else ("heights", (None, None))
        value = np.asarray(getattr(collider.geometry, part), float)
        if (
            value.ndim != 2
            or shape[1] not in (None, value.shape[1])
            or not value.size
            or not np.all(np.isfinite(value))
        ):
            raise ModelError(f"its {part} are no finite numbers of shape {shape}", element=element)
    box = collider.geometry if isinstance(collider.geometry, Box) else Box(np.ones(3))
    if not any(isinstance(x, Tracer) for x in (box.half, box.rounding)) and np.any(
        np.asarray(box.rounding) > np.asarray(box.half)
    ):
        raise ModelError("its rounding is larger than half of an edge", element=element)
    for part in ("friction", "restitution", "stiffness", "damping"):
        value = getattr(collider.material, part)
        if value is None or isinstance(value, Tracer):
            continue
        if not (np.isfinite(value) and value >= 0) or (part == "restitution" and value > 1):
            allowed = "from 0 to 1" if part == "restitution" else "0 or more, and finite"
            raise ModelError(f"its {part} is {value}, expected {allowed}", element=element)


def _ignored(
    colliders: Sequence[Collider], names: Sequence[str], ignore: Iterable[tuple[str, str]]
) -> set[tuple[int, int]]:
    found = set()
    for pair in ignore:
        sides = []
        for name in pair:
            side = [k for k, c in enumerate(colliders) if name in (names[k], c.on)]
            if not side and name != WORLD:
                raise ModelError("no collider has this name, or is on what has it", element=f"ignore {name!r}")
            sides.append(side)
        found |= {(min(a, b), max(a, b)) for a in sides[0] for b in sides[1]}
    return found

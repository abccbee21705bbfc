"""A model and the shapes on its bodies, and which pairs may touch.

What may touch is fixed when a scene is made, and each pair has a fixed number of candidates: nothing is ever sized by
how many touch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from dynax.contact.ends import Limited, Stop, check_stop, limited_coordinates, limiting_materials
from dynax.contact.material import Material, check_material
from dynax.contact.shapes import FIELDS, Box, Geometry, HeightField, Points
from dynax.contact.touch import Posed, candidates, supported
from dynax.embedding.model import EmbeddedModel, tree_of
from dynax.errors import ModelError
from dynax.model import Model
from dynax.model.flexible import FlexibleModel, skeleton_of
from dynax.model.structure import WORLD, Finding, close_names
from dynax.operators.pytree import pytree_dataclass
from dynax.spatial import Transform
from dynax.sweep import take_rows


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


@pytree_dataclass("bodies", "names", "pairs", "limited", "report")
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
    between: tuple[Material, ...] = ()
    """What holds for a pair, in place of what the materials of the two give; none, or one for each pair."""
    limited: Limited = ()
    """Coordinates that stop where their position limits are: joints, and which of theirs."""
    limiting: tuple[Material, ...] = ()
    """What these limits are made of."""
    stops: tuple[Stop, ...] = ()
    """Ropes and cones."""
    kappa: Any = None
    """Of derivatives of relaxed contact, `dx.simulate.Smoothed`; it changes no motion [J]."""
    report: tuple[Finding, ...] = ()
    """What of a file was left out, or is not as it was written."""

    meanings: ClassVar[str] = "dynax.contact.configurations"
    """Where it is said what functions of a model mean for a scene."""

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def tree(self) -> Model:
        """The rigid tree whose bodies shapes are on; of a model with bodies that bend each node is one."""
        return skeleton_of(tree_of(self.model))

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

    def with_material(self, *on: str, **numbers: Any) -> Scene:
        """A scene whose colliders have some numbers of their `Material` replaced, such as `friction=0.3`.

        `on`: names of colliders, of bodies, or `"world"`; all colliders without any. What `pairs` gave for a pair holds
        as before. Traced numbers are taken, so that what comes of them has derivatives by them. `ModelError` for
        names that do not exist and numbers that are none.
        """
        of_body = {-1: WORLD} | {k: self.tree.body_names[k] for k in set(self.bodies) if k >= 0}
        known = [(name, of_body[body]) for name, body in zip(self.names, self.bodies, strict=True)]
        for name in on:
            if not any(name in own for own in known):
                names = dict.fromkeys(x for own in known for x in own)
                raise ModelError(close_names(name, names, "collider, or body with one"))
        if unknown := set(numbers) - set(Material.__dataclass_fields__):
            raise ModelError(close_names(unknown.pop(), Material.__dataclass_fields__, "number of a Material"))
        materials = list(self.materials)
        for k, own in enumerate(known):
            if not on or not set(own).isdisjoint(on):
                materials[k] = dataclasses.replace(materials[k], **numbers)
                check_material(materials[k], f"collider {own[0]!r}")
        return dataclasses.replace(self, materials=tuple(jax.tree.map(jnp.asarray, materials)))

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
            one = jax.eval_shape(jax.vmap(candidates), *map(_nowhere, sides_of(self, group, float)))
            found += [pair for pair in group for _ in range(one.gap.shape[1])]
        return tuple(found)

    def __repr__(self) -> str:
        return f"Scene({self.model.name!r}, {len(self.shapes)} shapes, {len(self.pairs)} pairs)"


def scene(
    model: Model | EmbeddedModel | FlexibleModel,
    colliders: Sequence[Collider],
    ignore: Iterable[tuple[str, str]] = (),
    *,
    pairs: Iterable[tuple[str, str]] | Mapping[tuple[str, str], Material] | None = None,
    limits: bool | Material | Mapping[str, Material] = True,
    stops: Sequence[Stop] = (),
) -> Scene:
    """Shapes on the bodies of a model, and which of them may touch.

    Of a body that bends, a shape is on its frame or on one of its nodes, and moves as that does.

    All pairs may but those on one body, on a body and its parent (the world is parent of none here), those whose kinds
    are both ground, and those to `ignore`, by the names of colliders or of what they are on. Or those named in `pairs`
    alone, by the names of colliders; where it gives a material, that holds in place of what the two are made of. With
    `limits` coordinates stop where the `position_limits` of joints are; a material says how much limits bounce and
    yield, for all or by the names of joints. `stops`: `Rope` and `Cone`.
    `ModelError` for a pair for which it is not known where they touch, for names that do not exist and numbers that are
    none.
    """
    bodies, names, placements = [], [], []
    for k, collider in enumerate(_all_of(colliders)):
        name = collider.name or f"{collider.on}/{k}"
        if name in names:
            raise ModelError("there are two of this name", element=f"collider {name!r}")
        try:
            body, pose = tree_of(model).locate(collider.on)
        except KeyError as error:
            raise ModelError(str(error.args[0]), element=f"collider {name!r}") from None
        _check(collider, name)
        bodies.append(body)
        names.append(name)
        placements.append(collider.placement if pose is None else pose @ collider.placement)
    given = _named(names, pairs)
    if given is None:
        chosen = _all_but(*_wholes(tree_of(model), bodies), _ignored(colliders, names, ignore))
    else:
        chosen = list(given)
    for a, b in chosen:
        if not supported(colliders[a].geometry, colliders[b].geometry):
            raise ModelError(
                f"where a {_kinds(colliders[a], colliders[b])} touch is not known",
                element=f"colliders {names[a]!r} and {names[b]!r}",
                hint="give one as Sphere, Capsule, Box or Points, or name the pair in `ignore`",
            )
    tree = skeleton_of(tree_of(model))
    limited = limited_coordinates(tree) if limits else ()
    limiting = limiting_materials(tree, limits)
    for stop in stops:
        check_stop(tree, stop)
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
        tuple(chosen),
        () if not isinstance(pairs, Mapping) else jax.tree.map(jnp.asarray, tuple((given or {}).values())),
        limited,
        jax.tree.map(jnp.asarray, tuple(limiting.get(name, Material()) for name, _ in limited)),
        jax.tree.map(jnp.asarray, tuple(stops)),
    )


def _kind(shape: Geometry) -> Any:
    leaves, structure = jax.tree.flatten(shape)
    return structure, tuple(jnp.shape(leaf) for leaf in leaves)


@pytree_dataclass("bodies")
class Side:
    """Of some pairs the shapes of one side, in rows."""

    shapes: Geometry
    placements: Transform
    """In their bodies."""
    bodies: tuple[int, ...]


def sides_of(scene: Scene, group: Sequence[tuple[int, int]], dtype: Any) -> tuple[Side, Side]:
    """The first and the second shapes of pairs of the same kinds."""
    first, second = (_side(scene, own, dtype) for own in zip(*group, strict=True))
    return first, second


def _side(scene: Scene, own: Sequence[int], dtype: Any) -> Side:
    shapes = jax.tree.map(lambda *x: jnp.stack([jnp.asarray(a, dtype) for a in x]), *(scene.shapes[k] for k in own))
    placements = jax.tree.map(lambda x: x.astype(dtype), take_rows(scene.placements, np.array(own)))
    return Side(shapes, placements, tuple(scene.bodies[k] for k in own))


def _nowhere(side: Side) -> Posed:
    return Posed(side.shapes, side.placements.rotation, side.placements.translation)


def _all_of(colliders: Sequence[Collider]) -> Sequence[Collider]:
    if isinstance(colliders, Collider):
        raise ModelError("it is one collider, expected a list", element="colliders", hint="write [Collider(...)]")
    for k, collider in enumerate(colliders):
        if not isinstance(collider, Collider):
            hint = "write Collider(body, shape)"
            raise ModelError(f"it is {collider!r}, expected a Collider", element=f"colliders[{k}]", hint=hint)
    return colliders


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
        value = getattr(collider.geometry, part)
        value = value if isinstance(value, Tracer) else np.asarray(value, float)
        known = isinstance(value, Tracer) or np.all(np.isfinite(value))
        if value.ndim != 2 or shape[1] not in (None, value.shape[1]) or not value.size or not known:
            raise ModelError(f"its {part} are no finite numbers of shape {shape}", element=element)
    box = collider.geometry if isinstance(collider.geometry, Box) else Box(np.ones(3))
    if not any(isinstance(x, Tracer) for x in (box.half, box.rounding)) and np.any(
        np.asarray(box.rounding) > np.asarray(box.half)
    ):
        raise ModelError("its rounding is larger than half of an edge", element=element)
    check_material(collider.material, element)


def _kinds(*colliders: Collider) -> str:
    return " and a ".join(type(collider.geometry).__name__ for collider in colliders)


def _wholes(tree: Model | FlexibleModel, bodies: Sequence[int]) -> tuple[list[int], list[int]]:
    """What each of some bodies is part of, the frame for the places of a body that bends; and of all bodies what the
    whole is carried by."""
    if isinstance(tree, Model):
        return list(bodies), list(tree.parents)
    own, parents = list(range(tree.num_bodies)), tree.skeleton.parents
    first = list(own)
    for member in tree.members:
        for place in (member.held, *member.nodes):
            if place >= 0:
                own[place] = member.frame
        first[member.frame] = member.frame if member.held < 0 else member.held
    whole = [*own, -1]
    return [whole[k] for k in bodies], [whole[parents[first[k]]] for k in range(tree.num_bodies)]


def _all_but(bodies: Sequence[int], parents: Sequence[int], ignored: set[tuple[int, int]]) -> list[tuple[int, int]]:
    found = []
    for a, one in enumerate(bodies):
        for b, other in enumerate(bodies[a + 1 :], a + 1):
            related = one >= 0 and other >= 0 and (parents[one] == other or parents[other] == one)
            if one != other and not related and (a, b) not in ignored:
                found.append((a, b))
    return found


def _named(names: Sequence[str], pairs: Iterable[tuple[str, str]] | None) -> dict[tuple[int, int], Material] | None:
    """The pairs that are given, by numbers of colliders."""
    if pairs is None:
        return None
    number, found = {name: k for k, name in enumerate(names)}, {}
    for pair in pairs:
        for name in pair:
            if name not in number:
                raise ModelError("no collider has this name", element=f"pairs {name!r}")
        a, b = sorted(number[name] for name in pair)
        found[a, b] = pairs[pair] if isinstance(pairs, Mapping) else Material()
        check_material(found[a, b], f"colliders {names[a]!r} and {names[b]!r}")
    return found


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

"""Scenes from files: a robot with its collision elements."""

from __future__ import annotations

import dataclasses
import os
from collections import defaultdict
from collections.abc import Mapping

from dynax.contact.material import Material
from dynax.contact.scene import Collider, Scene, scene
from dynax.contact.shapes import Geometry
from dynax.contact.touch import supported
from dynax.embedding.model import EmbeddedModel, tree_of
from dynax.errors import ModelError
from dynax.io._elements import Elements
from dynax.io._mjcf_elements import read_mjcf_elements
from dynax.io._urdf_elements import read_urdf_elements
from dynax.io._urdf_tree import listed
from dynax.io.load import is_mjcf, is_saved, load
from dynax.io.source import read_source
from dynax.model import Model
from dynax.model.structure import WORLD


def load_scene(
    source: str | os.PathLike,
    *,
    root: str = "fixed",
    ground: Geometry | Collider | None = None,
    self_contact: bool = False,
    packages: Mapping[str, str | os.PathLike] | None = None,
    vertices: int = 16,
    model: Model | EmbeddedModel | None = None,
    isolate: bool = False,
) -> Scene:
    """A URDF or an MJCF with what collides in it: a `contact.Scene`, which takes the place of a model in rollouts.

        scene = dx.load_scene("go2.urdf", root="free", ground=dx.contact.Plane())
        motion = dx.rollout(scene, q, v, controls, dt=0.005)

    A robot touches the world: the `ground`, the geoms of an MJCF's world body, the link `world` of a URDF; of an MJCF
    also other robots and objects. What does not collide by the file's own rules stays so. A mesh stands for its
    convex hull. What is left out is listed in `scene.report`: meshes that are not found, pairs of which it is not known
    where they touch.

    **Arguments:**

    - `source`, `root`, `isolate`: as `dx.load` takes them.
    - `ground`: a shape in the world, such as `contact.Plane()`, or a `contact.Collider`; none but what the file has.
    - `self_contact`: whether bodies of one robot touch each other, but for a body and its parent. Robots are seldom
      drawn for that: see `contact.contacts(scene, q).gap` for what overlaps where it should not.
    - `packages`: folders of packages that meshes of a URDF are in (`package://name/...`), by name. Otherwise they are
      sought around the file and in `ROS_PACKAGE_PATH`.
    - `vertices`: of a mesh at most.
    - `model`: to take in place of what the file says, with the same names: with other masses, with loops embedded.

    Raises `ModelError` as `dx.load` does. Meshes of URDFs need the `trimesh` package (`pip install "dynax[mesh]"`).
    """
    text, file = read_source(source)
    if is_saved(text):
        raise ModelError("a saved model has no collision elements", file=file, hint="give the URDF or the MJCF itself")
    own = load(source, root=root, isolate=isolate) if model is None else model
    tree = tree_of(own)
    if is_mjcf(text):
        found = read_mjcf_elements(text, file, vertices, self_contact, isolate)
    else:
        found = read_urdf_elements(text, file, packages or {}, vertices)
        _add_pairs(found, tree, self_contact)
    if ground is not None:
        _add_ground(found, tree, ground if isinstance(ground, Collider) else Collider(WORLD, ground, name="ground"))
    pairs = _known(found)
    limits = {name: material for name, material in found.limits.items() if name in tree.joint_names} or True
    whole = scene(own, found.colliders, pairs=pairs, limits=found.limited and limits, stops=found.stops)
    return dataclasses.replace(whole, report=tuple(found.report))


def _body(tree: Model, collider: Collider) -> int:
    try:
        return tree.locate(collider.on)[0]
    except KeyError as error:
        raise ModelError(str(error.args[0]), element=f"collider {collider.name!r}") from None


def _add_pairs(found: Elements, tree: Model, self_contact: bool) -> None:
    """Of one robot, whose base may be fixed: its links there are the robot's, and not the world."""
    bodies = [_body(tree, collider) for collider in found.colliders]
    parents = (*tree.parents, -2)  # of the base none
    for a, one in enumerate(found.colliders):
        for b, other in enumerate(found.colliders[a + 1 :], a + 1):
            still = (one.name in found.still) + (other.name in found.still)
            near = bodies[a] == bodies[b] or bodies[a] == parents[bodies[b]] or bodies[b] == parents[bodies[a]]
            apart = bodies[a] != bodies[b] if still else self_contact and not near
            if still < 2 and apart:
                found.pairs[one.name, other.name] = Material()


def _add_ground(found: Elements, tree: Model, ground: Collider) -> None:
    others = list(found.colliders)
    own = found.add(ground if ground.name else dataclasses.replace(ground, name="ground"))
    for collider in others:
        if _body(tree, collider) != _body(tree, own):
            found.pairs[own.name, collider.name] = Material()


def _known(found: Elements) -> dict[tuple[str, str], Material]:
    """The pairs of which it is known where they touch; the others are reported."""
    shapes = {collider.name: collider.geometry for collider in found.colliders}
    kept, left = {}, defaultdict(list)
    for pair, material in found.pairs.items():
        if supported(*(shapes[name] for name in pair)):
            kept[pair] = material
        else:
            left[tuple(sorted(type(shapes[name]).__name__ for name in pair))].append(pair)
    for kinds, pairs in left.items():
        what = listed((" and ".join(map(repr, pair)) for pair in pairs), 20)
        found.note("contact", f"left out, since it is not known where a {' and a '.join(kinds)} touch: {what}")
    return kept

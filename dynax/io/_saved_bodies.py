"""Bodies that bend in saved models: what their numbers and their places must be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import numpy as np

from dynax.errors import ModelError
from dynax.flexible import FlexibleBody
from dynax.flexible.body import leaf_shapes, refuse_impossible
from dynax.joints import Free
from dynax.model.structure import Structure

Integrals = dict[str, np.ndarray]


def integrals_of(body: FlexibleBody) -> Integrals:
    """The leaves by name."""
    return {f.name: np.asarray(getattr(body, f.name)) for f in fields(body) if f.name in leaf_shapes(0, 0)}


def integral_shapes(own: Integrals) -> dict[str, tuple[int, ...]]:
    """The shape of each leaf without batch axes."""
    return leaf_shapes(own["modal_mass"].shape[-1], own["node_position"].shape[-2])


def check_integrals(name: str, own: Integrals) -> None:
    """`ModelError` for numbers that no body has, in any sample of a batch."""
    shapes = integral_shapes(own)
    batch = max((leaf.shape[: leaf.ndim - len(shapes[k])] for k, leaf in own.items()), key=len)
    for sample in np.ndindex(batch):
        one = {k: leaf[sample] if leaf.ndim > len(shapes[k]) else leaf for k, leaf in own.items()}
        try:
            refuse_impossible({k: leaf.astype(np.float64) for k, leaf in one.items()})
        except ModelError as error:
            raise ModelError(error.reason, element=f"flexible body {name!r}", hint=error.hint) from None


def check_places(structure: Structure, bodies: Mapping[str, FlexibleBody]) -> None:
    """`ModelError` for bodies that do not stand in the tree as a builder places them."""
    topology, index = structure.topology, structure.body_index
    for name, body in bodies.items():
        nodes = [f"{name}/{node}" for node in body.node_names[1:]]
        frame = index.get(name, -1)
        children = topology.children[frame] if frame >= 0 else ()
        if [structure.body_names[k] for k in children] != nodes or any(
            topology.joints[k] != Free() for k in (frame, *children)
        ):
            raise ModelError(f"its places {[name, *nodes]} are not in the tree", element=f"flexible body {name!r}")


def with_weight(
    structure: Structure, numbers: dict[str, np.ndarray], bodies: Mapping[str, FlexibleBody]
) -> dict[str, np.ndarray]:
    """With a mass at the frames of bodies that bend and an armature at their places, which what checks a tree looks at:
    it knows of no modes."""
    topology = structure.topology
    frames = [structure.body_index[name] for name in bodies]
    modal = np.isin(topology.body_of_velocity, [*frames, *(k for frame in frames for k in topology.children[frame])])
    mass, inertia = numbers["mass"].copy(), numbers["inertia"].copy()
    mass[..., frames], inertia[..., frames, :3] = 1.0, 1.0
    return {**numbers, "mass": mass, "inertia": inertia, "armature": np.where(modal, 1.0, numbers["armature"])}

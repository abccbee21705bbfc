"""Robots that are made up: chains, random trees, and one with several kinds of joints. Needs NumPy only."""

from __future__ import annotations

import numpy as np

from benchmarks.bodies import FREE, PRISMATIC, REVOLUTE, SPHERICAL, Bodies


def chain(links: int) -> Bodies:
    """Links end to end, their hinges along z, y and x in turn."""
    return _hinged(f"chain{links}", [k - 1 for k in range(links)], np.random.default_rng(2))


def tree(size: int) -> Bodies:
    """A random tree in which no body carries more than two; 127 bodies have depth 12."""
    rng = np.random.default_rng(2)
    parents, room = [-1], {0: 2}
    for k in range(1, size):
        parent = int(rng.choice(list(room)))
        parents.append(parent)
        room[parent] -= 1
        if not room[parent]:
            del room[parent]
        room[k] = 2
    return _hinged(f"tree{size}", parents, rng)


def mixed() -> Bodies:
    """A free base with legs, a spine and arms: 7 spherical, 3 prismatic and 4 revolute joints, nv 34."""
    legs = [(SPHERICAL, 0), (REVOLUTE, -1), (SPHERICAL, -1)] * 2
    arms = [(SPHERICAL, 8), (REVOLUTE, -1), (PRISMATIC, -1)] * 2
    joints = [(FREE, -1), *legs, (PRISMATIC, 0), (SPHERICAL, -1), *arms]
    kinds = [kind for kind, _ in joints]
    parents = [k - 1 if parent < 0 else parent for k, (_, parent) in enumerate(joints)]
    rng = np.random.default_rng(5)
    axes = rng.normal(size=(len(kinds), 3))
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    axes[[kind in (FREE, SPHERICAL) for kind in kinds]] = 0.0
    rotation, _ = np.linalg.qr(rng.normal(size=(len(kinds), 3, 3)))
    rotation *= np.linalg.det(rotation)[:, None, None]
    translation = 0.3 * rng.normal(size=(len(kinds), 3))
    rotation[0], translation[0] = np.eye(3), 0.0
    return _with_inertias("mixed", kinds, parents, axes, rotation, translation, rng)


def _hinged(name: str, parents: list[int], rng: np.random.Generator) -> Bodies:
    """Short links on revolute joints along the axes of coordinates."""
    count = len(parents)
    axes = np.eye(3)[[2, 1, 0]][np.arange(count) % 3]
    translation = np.array([0.0, 0.0, 0.1]) + 0.05 * rng.normal(size=(count, 3))
    return _with_inertias(name, [REVOLUTE] * count, parents, axes, np.tile(np.eye(3), (count, 1, 1)), translation, rng)


def _with_inertias(name: str, kinds, parents, axes, rotation, translation, rng: np.random.Generator) -> Bodies:
    count = len(parents)
    mass = rng.uniform(0.5, 1.5, count)
    root = 0.3 * rng.normal(size=(count, 3, 3)) + np.eye(3)
    second = 0.01 * mass[:, None, None] * np.einsum("nij,nkj->nik", root, root)  # moments of some mass
    inertia = np.trace(second, axis1=1, axis2=2)[:, None, None] * np.eye(3) - second
    return Bodies(
        name=name,
        names=[f"body{k}" for k in range(count)],
        joints=[f"joint{k}" for k in range(count)],
        kinds=list(kinds),
        parents=list(parents),
        axes=axes,
        rotation=rotation,
        translation=translation,
        mass=mass,
        com=0.05 * rng.normal(size=(count, 3)),
        inertia=inertia,
    )

"""A model as a tree a person can read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax.core import Tracer

from dynax.model.structure import Structure


def draw(s: Structure, mass: Any, *, head: str | None = None, kinds: Mapping[int, str] | None = None) -> str:
    """The tree of bodies, one line each, with the joint that carries it and the mass where it is known; `kinds` says
    of some bodies what they are instead of their joint."""
    topology, kinds = s.topology, kinds or {}
    head = head or f"Model {s.name!r}: {topology.num_bodies} bodies, nq={topology.nq}, nv={topology.nv}"
    known = not isinstance(mass, Tracer) and getattr(mass, "ndim", 0) == 1
    if known:
        head += f", {float(np.sum(np.asarray(mass))):.4g} kg"
    frames: dict[int, list[str]] = {}
    for name, body in zip(s.frame_names, s.frame_bodies, strict=True):
        frames.setdefault(body, []).append(name)
    lines = [head, "world" + _frames(frames.get(-1))]
    # Depth first without recursion: a chain of thousands of links prints as well.
    stack = [(body, "", body == topology.roots[-1]) for body in reversed(topology.roots)]
    while stack:
        body, indent, last = stack.pop()
        weight = f", {float(mass[body]):.4g} kg" if known and (body not in kinds or mass[body]) else ""
        joint = kinds.get(body, f"{s.joint_names[body]}: {topology.joints[body]!r}")
        lines.append(
            f"{indent}{'└─' if last else '├─'} {s.body_names[body]} ({joint}{weight}){_frames(frames.get(body))}"
        )
        children = topology.children[body]
        deeper = indent + ("   " if last else "│  ")
        stack.extend((child, deeper, child == children[-1]) for child in reversed(children))
    if s.report:
        lines.append(f"report: {len(s.report)} finding{'s' if len(s.report) > 1 else ''}, see model.report")
    return "\n".join(lines)


def _frames(names: list[str] | None) -> str:
    if not names:
        return ""
    shown = ", ".join(names[:4]) + (f", ... {len(names) - 4} more" if len(names) > 4 else "")
    return f" [{shown}]"

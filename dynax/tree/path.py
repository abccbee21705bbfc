"""The way from the base to one body, as a chain of its own: what a body's pose and Jacobian hang on, and no more."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from dynax.model import Model
from dynax.model.structure import Structure
from dynax.sweep import take_rows
from dynax.topology import Topology


class Path:
    """The bodies from the base of a tree to one of its bodies, and where their coordinates stand in the tree's."""

    def __init__(self, structure: Structure, body: int):
        topology = structure.topology
        self.bodies = np.flatnonzero(topology.support[body])

        def own(start: np.ndarray) -> np.ndarray:
            return np.concatenate([np.arange(start[b], start[b + 1]) for b in self.bodies])

        self.q, self.v, self.parameters = own(topology.q_start), own(topology.v_start), own(topology.parameter_start)
        self.from_v = np.full(topology.nv, -1)
        """For each velocity of the tree the one of the chain, -1 off it."""
        self.from_v[self.v] = np.arange(len(self.v))
        self.structure = Structure(
            structure.name,
            Topology(range(-1, len(self.bodies) - 1), [topology.joints[b] for b in self.bodies]),
            tuple(structure.body_names[b] for b in self.bodies),
            tuple(structure.joint_names[b] for b in self.bodies),
            (),
            (),
        )

    def model(self, model: Model) -> Model:
        """The chain alone. Nothing is attached to it, and it stands on its base as it does in the tree."""
        taken = {name: take_rows(getattr(model, name), getattr(self, which)) for name, which in _ROWS.items()}
        emptied = {name: jax.tree.map(lambda a: a[:0], getattr(model, name)) for name in _ATTACHED}
        return dataclasses.replace(model, **taken, **emptied, structure=self.structure)


_ROWS = dict.fromkeys(("placements", "hinges", "mass", "com", "first_moment", "inertia"), "bodies")
_ROWS |= dict.fromkeys(("armature", "damping", "friction_loss", "stiffness", "velocity_limits", "effort_limits"), "v")
_ROWS |= dict.fromkeys(("spring_reference", "position_limits"), "q") | {"joint_parameters": "parameters"}
_ATTACHED = ("frames", "loop_predecessors", "loop_successors", "loop_parameters", "coupling_ratio", "coupling_offset")

path: Any = lru_cache(maxsize=512)(Path)

"""The model: an immutable pytree. Its structure is static, every physical number is a differentiable leaf."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from dynax.joints import AbstractJoint
from dynax.model.drawing import draw
from dynax.model.numbers import number_shapes
from dynax.model.structure import WORLD, Finding, Structure, close_names
from dynax.spatial import Transform
from dynax.topology import Topology


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A multibody system. Made by `dx.load` or `dx.ModelBuilder`; changed by `replace`, never in place.

    All fields but `structure` are leaves: `jax.grad` differentiates with respect to them, `jax.vmap` batches them, and
    changing their values compiles nothing anew. `n` is the number of bodies; body axes and origins are those of the
    file.
    """

    gravity: jax.Array
    """The acceleration of free fall in the world [m/s^2], shape `(3,)`."""
    time: jax.Array
    """The time at which driven joints stand [s], a scalar."""
    placements: Transform
    """Each body's frame in its parent's when the joint is at its identity, `n` poses."""
    hinges: Transform
    """The joint's canonical frame (hinge along z) in the body's frame, `n` poses."""
    joint_parameters: jax.Array
    """Pitches and radii, in body order."""
    mass: jax.Array
    """[kg], shape `(n,)`."""
    com: jax.Array
    """Centres of mass in body axes [m], shape `(n, 3)`; where `first_moment` is not zero, points of reference."""
    first_moment: jax.Array
    """Mass times centre of mass, from `com`, body axes [kg m], shape `(n, 3)`: zero, unless parameters were fitted."""
    inertia: jax.Array
    """Rotational inertias about `com`, body axes, `Ixx Iyy Izz Ixy Iyz Ixz` [kg m^2], shape `(n, 6)`."""
    armature: jax.Array
    """Rotor inertia added to the diagonal of the mass matrix, shape `(nv,)`."""
    damping: jax.Array
    """Viscous friction [N s/m or N m s/rad], shape `(nv,)`."""
    friction_loss: jax.Array
    """Dry friction [N or N m], smoothed as `friction_loss * tanh(v / friction_velocity)`, shape `(nv,)`."""
    friction_velocity: jax.Array
    """The velocity at which dry friction is mostly developed [m/s or rad/s], a scalar."""
    stiffness: jax.Array
    """Joint springs [N/m or N m/rad], shape `(nv,)`."""
    spring_reference: jax.Array
    """The configuration in which the springs are relaxed, shape `(nq,)`."""
    position_limits: jax.Array
    """Lower and upper limits of the coordinates, infinite where there are none, shape `(nq, 2)`."""
    velocity_limits: jax.Array
    """Shape `(nv,)`."""
    effort_limits: jax.Array
    """Shape `(nv,)`."""
    frames: Transform
    """The named frames, each in the frame of the body it is fixed to."""
    loop_predecessors: Transform
    """Where each loop is closed, in the frame of the body that comes first (the world's for the world)."""
    loop_successors: Transform
    """The same in the frame of the other body."""
    loop_parameters: jax.Array
    """Lengths, pitches and radii of what closes the loops, in their order."""
    coupling_ratio: jax.Array
    """Gears: `q[follower] = sum of ratio * q[source] + offset`, a ratio for each source, gears in order."""
    coupling_offset: jax.Array
    structure: Structure

    # Static facts ------------------------------------------------------------------------------------------------

    @property
    def topology(self) -> Topology:
        return self.structure.topology

    @property
    def name(self) -> str:
        return self.structure.name

    @property
    def nq(self) -> int:
        """The length of a configuration."""
        return self.topology.nq

    @property
    def nv(self) -> int:
        """The length of a velocity: the degrees of freedom."""
        return self.topology.nv

    @property
    def num_bodies(self) -> int:
        """How many bodies move; the world and welded links are not counted."""
        return self.topology.num_bodies

    @property
    def parents(self) -> tuple[int, ...]:
        """The parent of each body, -1 for the world."""
        return self.topology.parents

    @property
    def joints(self) -> tuple[AbstractJoint, ...]:
        """The kind of joint that carries each body; axes and parameters are leaves."""
        return self.topology.joints

    @property
    def body_names(self) -> tuple[str, ...]:
        return self.structure.body_names

    @property
    def joint_names(self) -> tuple[str, ...]:
        """The joint that carries each body, in body order."""
        return self.structure.joint_names

    @property
    def frame_names(self) -> tuple[str, ...]:
        """Named frames: welded links and the frames a builder was given."""
        return self.structure.frame_names

    @property
    def couplings(self) -> tuple[tuple[str, ...], ...]:
        """Gears, mimic joints and differentials: the joint that follows, then those it follows."""
        return self.structure.couplings

    @property
    def constrained(self) -> bool:
        """Whether loops, gears or conditions tie the joints of the tree together."""
        return bool(self.structure.loops or self.structure.couplings or self.structure.conditions)

    @property
    def loop_names(self) -> tuple[str, ...]:
        return self.structure.loop_names

    @property
    def report(self) -> tuple[Finding, ...]:
        """What was odd about the source but could be loaded, as it was."""
        return self.structure.report

    def body_index(self, name: str) -> int:
        """The row of a body; raises `KeyError` with near names."""
        try:
            return self.structure.body_index[name]
        except KeyError:
            raise KeyError(close_names(name, self.body_names, "body")) from None

    def joint_index(self, name: str) -> int:
        """The row of the body a joint carries; raises `KeyError` with near names."""
        try:
            return self.structure.joint_index[name]
        except KeyError:
            raise KeyError(close_names(name, self.joint_names, "joint")) from None

    def q_slice(self, joint: str) -> slice:
        """Where a joint's coordinates stand in `q`."""
        k, start = self.joint_index(joint), self.topology.q_start
        return slice(int(start[k]), int(start[k + 1]))

    def v_slice(self, joint: str) -> slice:
        """Where a joint's velocities stand in `v`, `a` and `tau`."""
        k, start = self.joint_index(joint), self.topology.v_start
        return slice(int(start[k]), int(start[k + 1]))

    def locate(self, name: str) -> tuple[int, Transform | None]:
        """The body (-1: the world) a body or frame name stands for, and the frame's pose in it (`None`: the body's)."""
        if name == WORLD:
            return -1, Transform.identity()
        if name in self.structure.body_index:
            return self.structure.body_index[name], None
        if name in self.structure.frame_index:
            k = self.structure.frame_index[name]
            pose = Transform(self.frames.rotation[k], self.frames.translation[k])
            return self.structure.frame_bodies[k], pose
        raise KeyError(close_names(name, self.body_names + self.frame_names, "body or frame"))

    # Changing ----------------------------------------------------------------------------------------------------

    def replace(self, **leaves) -> Model:
        """A model with some leaves replaced, such as `model.replace(mass=2 * model.mass)`.

        A leaf is an array, list or number of the shape it has, with any batch axes in front: models that differ in some
        leaves are one model with batch axes on these, for `jax.vmap` to take apart (`examples/batch_of_models.py`).
        Whole numbers become floating ones. `ValueError` for names and shapes that do not fit; values are not looked at.
        """
        for name, value in leaves.items():
            if name not in _LEAVES:
                raise ValueError(close_names(name, _LEAVES, "leaf of a Model"))
            leaves[name] = self._fitting(name, value)
        return dataclasses.replace(self, **leaves)

    def _fitting(self, name: str, value: Any) -> Any:
        present = getattr(self, name)
        if not all(hasattr(leaf, "dtype") for leaf in jax.tree.leaves(present, is_leaf=lambda x: x is None)):
            return value  # a tree of the same structure that holds no arrays, such as the axes of a `vmap`
        if not isinstance(present, Transform):
            return self._fitting_array(name, present, value)
        if not isinstance(value, Transform):
            raise ValueError(f"`{name}` must be a Transform with `rotation` and `translation`, got {value!r}")
        parts = {part: getattr(value, part) for part in ("rotation", "translation")}
        return Transform(
            **{p: self._fitting_array(f"{name}.{p}", getattr(present, p), part) for p, part in parts.items()}
        )

    def _fitting_array(self, name: str, present: Any, value: Any) -> Any:
        if not hasattr(value, "dtype") or not jnp.issubdtype(value.dtype, jnp.floating):
            try:
                value = jnp.asarray(value, present.dtype)
            except (TypeError, ValueError):
                raise ValueError(f"`{name}` must be an array of numbers, got {value!r}") from None
        shape, own = tuple(value.shape), number_shapes(self.structure)[name]
        if shape[len(shape) - len(own) :] != own:
            raise ValueError(
                f"`{name}` has shape {shape}, expected {own} in model {self.name!r}, or batch axes before it"
            )
        return value

    def at_time(self, time) -> Model:
        """The model with its driven joints where they stand at `time` [s]."""
        return self.replace(time=jnp.asarray(time, self.time.dtype))

    def __repr__(self) -> str:
        return draw(self.structure, self.mass)


_LEAVES = tuple(f.name for f in dataclasses.fields(Model) if f.name != "structure")
jax.tree_util.register_dataclass(Model, data_fields=list(_LEAVES), meta_fields=["structure"])

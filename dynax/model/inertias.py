"""The rigid bodies of a model as numbers that their equations of motion are linear in."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.model.model import Model
from dynax.spatial import RigidInertia, Sym3, Vec3


def body_inertias(model: Model, dtype: Any = None) -> RigidInertia:
    """The inertias of all bodies about their origins, in their axes."""
    leaves = (model.mass, model.com, model.first_moment, model.inertia)
    mass, com, left, inertia = (leaf.astype(leaf.dtype if dtype is None else dtype) for leaf in leaves)
    return RigidInertia(mass, Vec3.from_array(left), Sym3.from_six(inertia)).shift_to_parent(Vec3.from_array(com))


def inertial_parameters(model: Model) -> jax.Array:
    """The linear inertial parameters of all bodies, `[m, m c (3), Ixx Iyy Izz Ixy Iyz Ixz]` about the origin, `(n,
    10)`."""
    return body_inertias(model).parameters


def with_inertial_parameters(model: Model, parameters: ArrayLike) -> Model:
    """The model with the given parameters, shape `(n, 10)`, whatever they are: the exact inverse of the above.

    Results of least squares are no bodies, as a rule: masses of zero have first moments all the same. The leaf
    `first_moment` therefore holds these as they are, `inertia` is about the body's origin, and `com`, the point both
    refer to, is zero. Nothing is divided by a mass.
    """
    p = RigidInertia.from_parameters(jnp.asarray(parameters, model.mass.dtype))
    moment = p.moment.array
    return model.replace(mass=p.mass, com=jnp.zeros_like(moment), first_moment=moment, inertia=p.inertia.six)

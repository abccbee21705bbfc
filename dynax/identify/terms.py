"""What the columns of a regressor stand for: the linear parameters of a model, one after another.

    inertias        ten per body, [m, m c (3), Ixx Iyy Izz Ixy Iyz Ixz] about the body's origin, in its axes
    armature        inertia of the rotor, against the acceleration of a freedom
    damping         against its velocity
    friction_loss   dry friction, against `tanh(v / friction_velocity)`
    stiffness       of the spring, against `difference(spring_reference, q)`
    offset          a constant force, as a drive's current shows at rest; no leaf of a model

All but the first have one parameter for each freedom, that of a free base excepted, which no drive moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar, cast, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dynax.embedding.model import EmbeddedModel, tree_of
from dynax.model import Model
from dynax.model.inertias import inertial_parameters, with_inertial_parameters

Term = Literal["inertias", "armature", "damping", "friction_loss", "stiffness", "offset"]
"""What columns of a regressor stand for: ten for each body, or one for each driven freedom."""
TERMS: tuple[Term, ...] = get_args(Term)
AnyTree = TypeVar("AnyTree", Model, EmbeddedModel)
INERTIAL = ("m", "mx", "my", "mz", "Ixx", "Iyy", "Izz", "Ixy", "Iyz", "Ixz")


def driven(model: Model | EmbeddedModel) -> np.ndarray:
    """The freedoms that a drive may move: all of the tree but those of free bases."""
    topology = tree_of(model).topology
    return np.flatnonzero(~np.isin(topology.body_of_velocity, topology.free_roots))


def checked(terms: Sequence[str]) -> tuple[Term, ...]:
    """The terms as a tuple; `ValueError` for one that there is not, or that stands there twice."""
    if isinstance(terms, str):
        raise ValueError(f"`terms` must be a sequence of names, got {terms!r}: write ({terms!r},)")
    for name in terms:
        if name not in TERMS:
            raise ValueError(f"`terms`: there is no {name!r}; choose from {', '.join(TERMS)}")
    if len(set(terms)) < len(terms) or not terms:
        raise ValueError(f"`terms` must name something, and each term once, got {tuple(terms)}")
    return cast(tuple[Term, ...], tuple(terms))


def parameter_names(model: Model | EmbeddedModel, terms: Sequence[Term] = ("inertias",)) -> tuple[str, ...]:
    """What each column of `regressor(model, ..., terms=terms)` stands for: `"Ixx of link1"`, `"damping of joint2"`.

    The freedoms of a joint that has several are counted from zero: `"damping of wrist[1]"`.
    """
    tree, names = tree_of(model), []
    freedoms = [
        name if joint.nv == 1 else f"{name}[{k}]"
        for name, joint in zip(tree.joint_names, tree.joints, strict=True)
        for k in range(joint.nv)
    ]
    for term in checked(terms):
        if term == "inertias":
            names += [f"{what} of {body}" for body in tree.body_names for what in INERTIAL]
        else:
            names += [f"{term} of {freedoms[j]}" for j in driven(model)]
    return tuple(names)


def parameter_vector(model: Model | EmbeddedModel, terms: Sequence[Term] = ("inertias",)) -> jax.Array:
    """The values that the model has for the columns of its regressor, shape `(p,)`; offsets are zero."""
    tree, own, parts = tree_of(model), driven(model), []
    for term in checked(terms):
        if term == "inertias":
            parts.append(inertial_parameters(tree).reshape(-1))
        elif term == "offset":
            parts.append(jnp.zeros(len(own), tree.mass.dtype))
        else:
            parts.append(getattr(tree, term)[own])
    return jnp.concatenate(parts)


def with_parameter_vector(model: AnyTree, values: ArrayLike, terms: Sequence[Term] = ("inertias",)) -> AnyTree:
    """The model with the values of `parameter_vector`, shape `(p,)`, whatever they are; other leaves stay.

    Offsets have no place in a model: subtract them from measured forces.
    """
    tree, own, terms = tree_of(model), driven(model), checked(terms)
    x = jnp.asarray(values, tree.mass.dtype)
    sizes = [10 * tree.num_bodies if term == "inertias" else len(own) for term in terms]
    if x.shape != (sum(sizes),):
        raise ValueError(f"`values` has shape {x.shape}, expected {(sum(sizes),)} for the terms {', '.join(terms)}")
    start = np.cumsum([0, *sizes])
    leaves = {}
    for k, term in enumerate(terms):
        part = x[start[k] : start[k + 1]]
        if term == "inertias":
            tree = with_inertial_parameters(tree, part.reshape(-1, 10))
            leaves |= {name: getattr(tree, name) for name in ("mass", "com", "first_moment", "inertia")}
        elif term != "offset":
            leaves[term] = getattr(tree, term).at[own].set(part)
    return model.replace(**leaves)

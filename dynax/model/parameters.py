"""A model as numbers that may take any value: what an optimiser may change without leaving the robots there can be.

    pose          T exp(x)                          with x in the tangent space [angular; linear] of the frame it places
    body          e^(2 alpha) A P A^T               with P its pseudo-inertia [[S, h], [h^T, m]], S = tr(I)/2 1 - I
    friction ...  x0 e^x                            zero stays zero
    the rest      x0 + x

`A = [[B, t], [0, 1]]` with `B` upper triangular, `e^d1, e^d2, e^d3` on its diagonal and `s12, s23, s13` above it,
stretches, shears and shifts the body, and `alpha` is its density: the log-Cholesky parameters of Rucker and Wensing
(2022, "Smooth parameterization of rigid-body inertia"), who deform the unit body where this deforms the one that is
there. Every body that has a volume is reached from every other one, by one set of values, and none that has not. All
parameters are zero at the model as it is, and shifts, in metres, are the only ones with a unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from dynax.model.checks import refuse_batched
from dynax.model.configuration import integrate_rows
from dynax.model.model import Model
from dynax.model.numbers import POSES
from dynax.model.structure import close_names
from dynax.spatial import Mat3, Motion, Sym3, Transform, Vec3
from dynax.spatial.components import outer_square

_POSITIVE = ("armature", "damping", "friction_loss", "friction_velocity", "stiffness")
_PLAIN = ("gravity", "joint_parameters", "loop_parameters", "coupling_ratio", "coupling_offset")


def parameters(model: Model) -> dict[str, jax.Array]:
    """Unconstrained parameters of a model, all zero: those of the model as it is.

    A plain dictionary of arrays, for `optax` and the like; take out what shall stay, and go back by `with_parameters`.

    - `inertias`, `(n, 10)`: `[alpha, d1, d2, d3, s12, s23, s13, t1, t2, t3]`. The mass grows by `exp(2 alpha)`, the
      body by `exp(d)` along the axes of its frame; `s` shears it, and `t` [m] shifts it.
    - `placements`, `hinges`, `frames`, `loop_predecessors`, `loop_successors`, `(k, 6)`: turn [rad] and shift [m] of
      each pose in its own axes.
    - `spring_reference`, `(nv,)`: a displacement, as `integrate` takes it.
    - `armature`, `damping`, `friction_loss`, `friction_velocity`, `stiffness`: logarithms of factors.
    - `gravity`, `joint_parameters`, `loop_parameters`, `coupling_ratio`, `coupling_offset`: summands.

    No factor moves what is zero, friction that is not there or a body without mass, so it stays; so does the inertia of
    `inconsistent_bodies(model)`. Give these a small number, or an inertia that there can be, first.
    """
    refuse_batched(model)
    shapes = {"inertias": (model.num_bodies, 10), "spring_reference": (model.nv,)}
    shapes |= {name: (len(getattr(model, name).translation), 6) for name in POSES}
    shapes |= {name: getattr(model, name).shape for name in (*_POSITIVE, *_PLAIN)}
    return {name: jnp.zeros(shape, model.mass.dtype) for name, shape in shapes.items()}


def with_parameters(model: Model, values: Mapping[str, ArrayLike]) -> Model:
    """The model moved by parameters, whatever their values: rotations are rotations and inertias those of bodies.

    **Arguments:**

    - `model`: where the parameters are zero. Always the one that they were made for, not the one of the step before.
    - `values`: some of what `parameters` gives, by name; leaves that no name belongs to stay.

    `with_parameters(model, parameters(model))` is the model itself. Raises `ValueError` for names and shapes that do
    not fit.
    """
    shapes = {name: zero.shape for name, zero in jax.eval_shape(parameters, model).items()}
    arrays = {name: jnp.asarray(value, model.mass.dtype) for name, value in values.items()}
    for name, x in arrays.items():
        if name not in shapes:
            raise ValueError(close_names(name, shapes, "parameter"))
        if x.shape != shapes[name]:
            raise ValueError(f"`{name}` has shape {x.shape}, expected {shapes[name]}; for a batch use jax.vmap")
    return _moved(model, arrays)


@jax.jit
def _moved(model: Model, values: dict[str, jax.Array]) -> Model:
    changed: dict[str, Any] = {}
    for name, x in values.items():
        leaf: Any = getattr(model, name, None)
        if name == "inertias":
            changed |= _deformed(model, x)
        elif name == "spring_reference":
            changed[name] = integrate_rows(model, leaf, x)
        elif name in POSES:
            changed[name] = leaf @ Transform.exp(Motion.from_array(x))
        else:
            changed[name] = leaf * jnp.exp(x) if name in _POSITIVE else leaf + x
    return model.replace(**changed)


def inconsistent_bodies(model: Model) -> tuple[str, ...]:
    """Bodies with inertias that nothing of positive mass can have, by name: without mass, or with moments of inertia
    about the centre of mass that violate the triangle inequality by more than rounding. `with_parameters` leaves them
    as they are."""
    consistent = np.asarray(_consistent(model))
    return tuple(name for name, fine in zip(model.body_names, consistent, strict=True) if not fine)


def _deformed(model: Model, x: jax.Array) -> dict[str, jax.Array]:
    """Leaves of the bodies after their deformation, about the point that they are described about."""
    x = jnp.where(_consistent(model)[:, None], x, 0.0)
    density, (s12, s23, s13) = jnp.exp(2.0 * x[:, 0]), x[:, 4:7].T
    d1, d2, d3 = jnp.exp(x[:, 1:4]).T
    zero = jnp.zeros_like(d1)
    stretch = Mat3(d1, s12, s13, zero, d2, s23, zero, zero, d3)
    inertia = Sym3.from_six(model.inertia)
    second = _second_moments(inertia)
    # By how much, so that what does not change keeps every digit: a thin rod's moment about its axis.
    grown = second.congruence(stretch) - second
    more = Sym3(grown.yy + grown.zz, grown.xx + grown.zz, grown.xx + grown.yy, -grown.xy, -grown.yz, -grown.xz)
    moment = (stretch @ Vec3.from_array(model.first_moment)) * density
    return {
        "mass": model.mass * density,
        "com": model.com + x[:, 7:],
        "first_moment": moment.array,
        "inertia": ((inertia + more) * density).six,
    }


def _consistent(model: Model) -> jax.Array:
    """Whether each body's pseudo-inertia is positive, or on the boundary to rounding."""
    mass, left, inertia = model.mass, Vec3.from_array(model.first_moment), Sym3.from_six(model.inertia)
    little = 1e-12 * mass
    heavy = (mass > 0.0) & (left.dot(left) <= mass * (inertia.trace + little))
    about_com = inertia - outer_square(left, left / jnp.where(heavy, mass, 1.0))
    # Rounding as the builder has it: relative to the tensor, or to that of a point of this mass a micrometre off.
    rounding = max(1e-9, 16.0 * float(jnp.finfo(mass.dtype).eps))
    slack = rounding * jnp.abs(about_com.trace) + little
    second = (_second_moments(about_com) + _isotropic(slack)) * (1.0 / jnp.where(slack > 0.0, slack, 1.0))
    return heavy & _positive(second)


def _positive(a: Sym3) -> jax.Array:
    """Whether a matrix is positive definite, by elimination of its largest diagonal entry first."""
    diagonal = jnp.stack([a.xx, a.yy, a.zz])
    others = (a.yy, a.zz, a.xy, a.xz, a.yz), (a.xx, a.zz, a.xy, a.yz, a.xz), (a.xx, a.yy, a.xz, a.yz, a.xy)
    found = []
    for pivot, (p, q, to_p, to_q, across) in zip(diagonal, others, strict=True):
        safe = jnp.where(pivot > 0.0, pivot, 1.0)
        p, q, across = p - to_p * to_p / safe, q - to_q * to_q / safe, across - to_p * to_q / safe
        found.append((pivot > 0.0) & (p > 0.0) & (p * q > across * across))
    return jnp.choose(jnp.argmax(diagonal, axis=0), found, mode="clip")


def _second_moments(inertia: Sym3) -> Sym3:
    """`tr(I) / 2 - I`, the integral of `x x^T`."""
    return _isotropic(0.5 * inertia.trace) - inertia


def _isotropic(x: jax.Array) -> Sym3:
    return Sym3.diagonal(x, x, x)

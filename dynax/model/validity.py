"""Whether arrays are a state at all."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from dynax.model.checks import as_state
from dynax.model.configuration import normalize
from dynax.model.kinds import for_models
from dynax.model.model import Model

# Quaternions from files have some seven digits; a norm that is off by more shows in every result.
ROUNDING = 1e-4


class Faults(NamedTuple):
    """What may be wrong with a state."""

    wrong: jax.Array
    """Whether each of them is, booleans of shape `(k,)`."""
    messages: list[str]


@for_models
def check_state(model: Model, q: jax.Array, v: jax.Array | None = None) -> tuple[jax.Array, jax.Array | None]:
    """`(q, v)` as they are, or an error that names the joint whose numbers are no state.

    Functions of dynax take configurations at their word: quaternions that are not of unit length give other results,
    and zeros, which are no rotation, NaN; so do bodies that are bent further than their inertia, which is of second
    order in their modes, holds: it is named. Of a model with loops embedded, those that `q` does not close are named.
    Ask here where states come from outside.

    **Arguments:** `q`: configuration, shape `(nq,)`. `v`: velocity, shape `(nv,)`, or `None`.

    **Raises:** `ValueError`, outside of `jax.jit` at once. Inside, `jax.errors.JaxRuntimeError` with the same words
    when the program runs (`equinox.filter_jit` shows them alone); use what is returned, or the check is dropped.
    """
    q, v = as_state(model, q=q, v=v, optional=("v",))
    return reported(model, q, v, joint_faults(model, q, v))


def joint_faults(model: Model, q: jax.Array, v: jax.Array | None) -> Faults:
    """Coordinates that are no numbers, quaternions that are no rotations."""
    names = model.joint_names
    nearest = normalize(model, q)
    slices = [model.q_slice(name) for name in names], [model.v_slice(name) for name in names]
    at_q, at_v = (np.repeat(np.arange(len(names)), [s.stop - s.start for s in own]) for own in slices)
    faults = [
        (at_q, ~jnp.isfinite(q), "`q` of joint {!r} is not finite"),
        (
            at_q,
            jnp.isfinite(q) & ~(jnp.abs(q - nearest) <= ROUNDING),
            "the quaternion of joint {!r} is not of unit length: dx.normalize(model, q) makes it so, and "
            "dx.neutral(model) is a configuration to start from",
        ),
    ]
    if v is not None:
        faults.append((at_v, ~jnp.isfinite(v), "`v` of joint {!r} is not finite"))
    wrong = jnp.concatenate([found for _, found, _ in faults])
    return Faults(wrong, [text.format(names[k]) for at, _, text in faults for k in at])


def reported(model: Model, q: jax.Array, v: jax.Array | None, faults: Faults) -> tuple[jax.Array, jax.Array | None]:
    """`(q, v)`, or an error that says the first of the `faults`."""
    wrong, messages = faults.wrong, [f"model {model.name!r}: {text}" for text in faults.messages]
    if not messages:
        return q, v
    if not isinstance(wrong, Tracer):
        if wrong.any():
            raise ValueError(messages[int(np.argmax(wrong))])
        return q, v
    import equinox as eqx  # takes a third of the time that JAX takes to be imported

    return eqx.branched_error_if((q, v), wrong.any(), jnp.argmax(wrong), messages)

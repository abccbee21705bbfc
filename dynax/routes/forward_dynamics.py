"""The public door to forward dynamics: the recursion, how it runs, and its differentiation rule."""

from __future__ import annotations

from functools import partial

import jax
from jax.typing import ArrayLike

from dynax.algorithms.aba import aba
from dynax.compile.batching import trailing
from dynax.derivatives.rule import differentiable
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.routes.chain import aba_associative

# How it runs. In one kernel, trees go body by body: talos in 2.1 us of a batch where levels take 2.6, and 5 s to
# compile, not 8; a random tree of 127 bodies in 6.8 instead of 13.9, of 2000 in 270 instead of 900. Limbs side by side
# go by levels: panda in 0.25, by bodies 0.33. In many kernels levels are the fastest, talos 3.3 where bodies take 5.9,
# but on robots of a few long limbs, where segments gain a tenth and take twice as long to compile. Log depth is for
# single long chains on an accelerator, and its derivative, the plain one, has it too.
WALKS = ("automatic", "levels", "bodies", "segments")
EXECUTIONS = {
    **{name: jax.jit(differentiable(partial(aba, execution=name), name)) for name in WALKS},
    "associative": jax.jit(trailing(aba_associative)),
}

# Of steps, whose gradients begin with the acceleration that a rollout has kept.
kept_forward_dynamics = jax.jit(differentiable(aba, "automatic", kept=True))


@for_models
def forward_dynamics(
    model: Model,
    q: ArrayLike,
    v: ArrayLike,
    tau: ArrayLike,
    external: ArrayLike | None = None,
    *,
    execution: str = "automatic",
) -> jax.Array:
    """The acceleration that joint forces produce, by the articulated-body algorithm, in O(n).

    Solves `M(q) a + bias(q, v, external) = tau`; Featherstone (2008), section 7.3, one motion column at a time, without
    forming `M`. Armature, damping, dry friction and springs take part as in `inverse_dynamics`. Of a model with loops
    or gears it takes the spanning tree; `constrained_dynamics` and `embed` close it.

    **Arguments:**

    - `q`: configuration, shape `(nq,)`; quaternions of unit length.
    - `v`, `tau`: velocity [m/s, rad/s] and joint force [N, N m], shape `(nv,)`.
    - `external`: wrenches `[moment; force]` on the bodies, in body axes about the body origins, shape `(n, 6)` [N m,
      N].
    - `execution`: how it runs and how its derivatives run, the same result by each: `"levels"` of the tree at once,
      `"bodies"` or unbranched `"segments"` one after another, or in logarithmic depth (`"associative"`) for a robot
      that is one chain. `"automatic"` is by bodies where the walk over a tree is one kernel (`dx.compile_report`), else
      by levels.

    **Returns:** `a`, shape `(nv,)`. It is not finite where nothing resists a freedom: a massless last body without
    armature, which `model.report` names.
    """
    if execution not in EXECUTIONS:
        raise ValueError(f"unknown execution {execution!r}: choose one of {', '.join(EXECUTIONS)}")
    return EXECUTIONS[execution](model, *as_state(model, q=q, v=v, tau=tau, external=external))

"""What a solver returns, and how a person reads it."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import jax
import numpy as np

from dynax.operators.pytree import pytree_dataclass
from dynax.optimize.problem import Multipliers


class Status(IntEnum):
    """How a solver ended; in a batch each lane has its own."""

    CONVERGED = 0
    """Nothing nearby is better, and all constraints hold."""
    ITERATIONS = 1
    """It was still on its way when the iterations ran out."""
    STALLED = 2
    """No step makes it better, though it is not at an optimum as far as can be told."""
    INFEASIBLE = 3
    """Constraints do not hold, however hard they are penalised."""
    NOT_FINITE = 4
    """Costs, constraints or dynamics, or a derivative of theirs, are not finite where it starts or where it came."""


class History(NamedTuple):
    """A row for each iteration, NaN after the last."""

    cost: jax.Array
    gap: jax.Array
    """The largest miss of the dynamics."""
    violation: jax.Array
    """The largest of the constraints."""
    decrease: jax.Array
    """What a whole step promises; NaN where the problem bent the wrong way and was not solved."""
    step: jax.Array
    """The step that was taken, 0 for none."""
    regularisation: jax.Array


@pytree_dataclass()
class Result:
    """A trajectory and what is known about it; `print` it."""

    states: jax.Array
    """Shape `(N + 1, nx)`."""
    controls: jax.Array
    """Shape `(N, nu)`."""
    gains: jax.Array
    """Of `controls + gains difference(states, x)`, which answers disturbances, shape `(N, nu, ndx)`."""
    costates: jax.Array
    """The slope of the cost by a push of each state along its tangent, shape `(N + 1, ndx)`."""
    multipliers: Multipliers
    cost: jax.Array
    """Without what penalises constraints; NaN where limits leave nothing, so that nothing was tried."""
    gap: jax.Array
    violation: jax.Array
    residual: jax.Array
    """The largest slope of the Lagrangian that is left, as a part of the largest costate or slope of a control; of a
    result that has not converged that before its last step."""
    iterations: jax.Array
    status: jax.Array
    """A `Status`."""
    history: History

    def __str__(self) -> str:
        status = np.asarray(self.status)
        if status.ndim:
            names, counts = np.unique(status, return_counts=True)
            count = ", ".join(f"{c} {_name(s)}" for s, c in zip(names, counts, strict=True))
            good = np.asarray(self.cost)[status == Status.CONVERGED]
            best = f"; cost {good.min():.6g} to {good.max():.6g}" if good.size else ""
            return f"{status.size} trajectories: {count}{best}; at most {np.max(self.iterations)} iterations"
        said = _name(status)
        return (
            f"{said} after {int(self.iterations)} iterations: cost {float(self.cost):.9g}, "
            f"{len(self.controls)} knots, gap {float(self.gap):.1e}, violation {float(self.violation):.1e}"
        )

    __repr__ = __str__


def _name(status: Any) -> str:
    return Status(int(status)).name.lower().replace("_", " ")

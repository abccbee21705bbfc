"""Problems handed to IPOPT, an interior-point code for large sparse programs, through `cyipopt` (the extra `nlp`).

It is global in the sense of its filter: gaps, limits and inequalities may be far from met on its way, and curvature of
the wrong sign is corrected by the inertia of its factor (Waechter & Biegler 2006, "On the implementation of an
interior-point filter line-search algorithm for large-scale nonlinear programming").
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from dynax.optimize.nlp import as_nlp
from dynax.optimize.problem import Problem
from dynax.optimize.result import Status

# `ApplicationReturnStatus` of IPOPT; every other number is an error of its own, told by `message`.
MEANINGS = {
    0: Status.CONVERGED,  # solved
    1: Status.CONVERGED,  # solved to the acceptable level
    2: Status.INFEASIBLE,  # locally
    3: Status.STALLED,  # steps too small
    4: Status.STALLED,  # iterates diverge
    6: Status.CONVERGED,  # a feasible point of a square problem
    -1: Status.ITERATIONS,
    -2: Status.STALLED,  # restoration failed
    -13: Status.NOT_FINITE,
}


class ProgramSolution(NamedTuple):
    """What a code for nonlinear programs found."""

    controls: jax.Array
    """Shape `(N, nu)`."""
    states: jax.Array
    """Shape `(N + 1, nx)`; what the steps miss is `violation`."""
    cost: float
    violation: float
    """The largest of the constraints, the dynamics' among them."""
    multipliers: np.ndarray
    """Of the constraints, in the order of `as_nlp`."""
    status: Status
    message: str
    """In the code's own words."""


def solve_by_ipopt(
    problem: Problem, controls: ArrayLike, states: ArrayLike, *, separated: bool = False, **options: Any
) -> ProgramSolution:
    """The optimum that IPOPT finds from a guess.

    **Arguments:** those of `as_nlp`; `options` are IPOPT's own, such as `tol=1e-9`, `max_iter=200`, `print_level=5`
    (by default it is silent).

    `ModuleNotFoundError` without `pip install "dynax[nlp]"`. Not for `jax.jit`: the numbers go to another program. Its
    solution is a guess for `o.solve`, which has derivatives.
    """
    try:
        import cyipopt  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError('IPOPT is missing: pip install "dynax[nlp]"', name="cyipopt") from error
    program = as_nlp(problem, controls, states, separated=separated)
    solver = cyipopt.Problem(
        n=program.n,
        m=program.m,
        problem_obj=program,
        lb=program.lower,
        ub=program.upper,
        cl=program.constraint_lower,
        cu=program.constraint_upper,
    )
    for name, value in {"print_level": 0, "sb": "yes", **options}.items():
        solver.add_option(name, value)
    y, info = solver.solve(np.zeros(program.n))
    u, x = program.trajectory(y)
    g = np.asarray(info["g"])
    misses = np.maximum(program.constraint_lower - g, g - program.constraint_upper)
    message = info["status_msg"]
    return ProgramSolution(
        controls=u,
        states=x,
        cost=float(info["obj_val"]),
        violation=float(np.max(misses, initial=0.0)),
        multipliers=np.asarray(info["mult_g"]),
        status=MEANINGS.get(info["status"], Status.STALLED),
        message=message.decode() if isinstance(message, bytes) else str(message),
    )

"""Sensitivities, log-determinant and diagonalised dynamics in O(n).

The size of all arrays that a program makes is its work; each has a few operations per entry.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from trees import build

import dynax as dx
from dynax.algorithms.factor import factorize, log_det
from dynax.operators.determinant import log_det_gradient

ROUTES = {
    "log_determinant": lambda model, q, v: log_det(factorize(model, q)),
    "fixman_torque": lambda model, q, v: log_det_gradient(model, q),
    "diagonalized": lambda model, q, v: dx.diagonalized_dynamics(model, q, v, v),
    "unnormalized": lambda model, q, v: dx.diagonalized_dynamics(model, q, v, v, normalized=False),
    "factor": lambda model, q, v: dx.sensitivities(model, q, v).F @ v,
    "inverse": lambda model, q, v: dx.sensitivities(model, q, v).inverse_mass_matrix @ v,
}


def sizes(jaxpr, times=1):
    """Of all arrays a program makes, those inside its loops as often as they are made."""
    for equation in jaxpr.eqns:
        yield from (times * variable.aval.size for variable in equation.outvars)
        inside = times * equation.params.get("length", 1)
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            if hasattr(inner, "eqns"):
                yield from sizes(inner, inside)


@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
def test_work_grows_with_the_chain(route):
    totals, largest = [], []
    for bodies in (50, 100):
        joints = [(k - 1, dx.Universal((1, 0, 0), (0, 1, 0)) if k % 2 else dx.Revolute()) for k in range(bodies)]
        model = build(joints, passive=False)
        zero = jnp.zeros(model.nv)
        found = list(sizes(jax.make_jaxpr(route)(model, zero, zero).jaxpr))
        totals.append(sum(found))
        largest.append(max(found))
    assert totals[0] > 50 * 100  # the walks were seen
    assert totals[1] < 2.02 * totals[0]
    assert largest[1] <= 2.02 * largest[0]


def test_the_mass_matrix_is_caught():
    with pytest.raises(AssertionError):
        test_work_grows_with_the_chain(lambda model, q, v: dx.inverse_mass_matrix(model, q) @ v)

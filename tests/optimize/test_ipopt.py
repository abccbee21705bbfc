"""The adaptor to IPOPT, with SciPy's interior point behind the same interface where `cyipopt` is not installed."""

from __future__ import annotations

import importlib.util
import sys
import types

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from optimize.standard import near

from dynax import optimize as o


class Problem:
    """`cyipopt.Problem` as its documentation has it, solved by `trust-constr`."""

    def __init__(self, n, m, problem_obj=None, lb=None, ub=None, cl=None, cu=None):
        self.own, self.shape = problem_obj, (m, n)
        self.limits, self.sides = (lb, ub), (cl, cu)
        self.options = {}

    def add_option(self, name, value):
        self.options[name] = value

    def solve(self, x, lagrange=(), zl=(), zu=()):
        own, (m, n) = self.own, self.shape

        def jacobian(y):
            return scipy.sparse.coo_matrix((own.jacobian(y), own.jacobianstructure()), (m, n)).tocsr()

        def hessian(y, multipliers, factor):
            half = scipy.sparse.coo_matrix(
                (own.hessian(y, multipliers, factor), own.hessianstructure()), (n, n)
            ).tocsr()
            return half + scipy.sparse.tril(half, -1).T

        found = scipy.optimize.minimize(
            own.objective,
            x,
            jac=own.gradient,
            hess=lambda y: hessian(y, np.zeros(m), 1.0),
            method="trust-constr",
            bounds=scipy.optimize.Bounds(*self.limits),
            constraints=scipy.optimize.NonlinearConstraint(
                own.constraints, *self.sides, jac=jacobian, hess=lambda y, v: hessian(y, v, 0.0)
            ),
            options={"gtol": self.options["tol"], "xtol": 1e-14, "maxiter": self.options["max_iter"]},
        )
        status = {1: 0, 2: 1, 0: -1}[found.status]
        info = {"g": own.constraints(found.x), "obj_val": found.fun, "mult_g": found.v[0], "status": status}
        return found.x, {**info, "status_msg": found.message.encode()}


@pytest.fixture
def ipopt(monkeypatch):
    if importlib.util.find_spec("cyipopt") is None:
        monkeypatch.setitem(sys.modules, "cyipopt", types.SimpleNamespace(Problem=Problem))


def block(limit: float) -> tuple[o.Problem, tuple]:
    """Unit mass from rest at 0 to rest at 1 in a second, least integral of u^2, by the trapezoid."""
    N = 10
    problem = o.collocation(
        o.plant(lambda x, u, p: jnp.stack([x[1], u[0]]), states=2, controls=1),
        jnp.zeros(2),
        jnp.full(N, 1.0 / N),
        method="trapezoid",
        costs=[o.residual(lambda x, u, p: u, 2.0)],
        end_constraints=[o.equality(lambda x, p: x - jnp.array([1.0, 0.0]))],
        lower=-limit,
        upper=limit,
    )
    return problem, o.guess(problem, np.zeros((N + 1, 2)), np.zeros((N + 1, 1)))


def test_limits_and_a_closed_form(ipopt):
    """Within limits that do not press the cost is Kelly's; where they press it is that of the solver of this package;
    and what cannot be done in a few iterations says so."""
    problem, start = block(20.0)
    found = o.solve_by_ipopt(problem, *start, tol=1e-9, max_iter=300)
    assert found.status == o.Status.CONVERGED, found.message
    near(found.cost, 12.461059190031158, 1e-6)
    assert found.violation < 1e-9
    assert np.max(np.abs(found.multipliers)) > 1.0

    problem, start = block(5.0)
    pressed, own = o.solve_by_ipopt(problem, *start, tol=1e-9, max_iter=300), o.solve(problem, *start)
    assert own.status == pressed.status == o.Status.CONVERGED
    assert own.cost > found.cost + 0.01
    near(pressed.cost, own.cost, 1e-5)
    near(pressed.states, own.states, 1e-4)
    assert o.solve_by_ipopt(problem, *start, tol=1e-9, max_iter=2).status == o.Status.ITERATIONS


def test_without_it_there_is_an_explanation(monkeypatch):
    monkeypatch.setitem(sys.modules, "cyipopt", None)
    problem, start = block(5.0)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "dynax\[nlp\]"'):
        o.solve_by_ipopt(problem, *start)

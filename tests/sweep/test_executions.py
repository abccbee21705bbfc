"""Dynamics under every execution of the walks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees

import dynax as dx
from dynax.algorithms.articulated import eliminate
from dynax.algorithms.crba import composites
from dynax.algorithms.rnea import project, transmitted
from dynax.bodies.hinge import slot_rows
from dynax.sweep import EXECUTIONS
from dynax.tree.bodies import net_forces, world_inertias
from dynax.tree.kinematics import kinematics
from dynax.tree.setup import setup


@pytest.mark.parametrize("name", ["screws"])
def test_dynamics_do_not_depend_on_the_execution(name):
    model = trees.tree(name)
    state = trees.states(model, 1)
    q, v, a, tau = (x[0] for x in state[:4])

    def all_of(execution):
        s = setup(model, q, v, execution)
        kin = kinematics(model, s, v, a, accelerations=True, gravity=True)
        inertias = world_inertias(s, kin)
        forces = net_forces(s, kin, inertias, None)
        total = s.layout.body_order(composites(s, kin, inertias))
        return (
            project(model, s, kin, transmitted(s, kin, forces)),
            eliminate(model, s, slot_rows(model, s, kin), inertias, forces, tau).a,
            total.mass,
            total.inertia.six,
        )

    first, *others = (jax.jit(lambda e=e: all_of(e))() for e in EXECUTIONS)
    for other in others:
        for x, y in zip(first, other, strict=True):
            np.testing.assert_allclose(y, x, atol=1e-11 * np.abs(x).max())


def test_derivatives_walk_by_the_execution_that_was_asked_for():
    """The same gradient for state, masses and torques from programs that are not the same."""
    model = trees.tree("arm")
    q, v, _, tau, external = (x[0] for x in trees.states(model, 1))

    def loss(execution, model, q, v, tau, external):
        return jnp.sum(jnp.sin(dx.forward_dynamics(model, q, v, tau, external, execution=execution)))

    def slope(execution):
        def of(mass, *state):
            return jax.grad(loss, argnums=(2, 3, 4, 5))(execution, model.replace(mass=mass), *state)

        compiled = jax.jit(of).lower(model.mass, q, v, tau, external)
        return compiled.as_text(), jax.tree.leaves(compiled.compile()(model.mass, q, v, tau, external))

    programs, slopes = zip(*map(slope, EXECUTIONS), strict=True)
    assert len(set(programs)) == len(EXECUTIONS)
    for other in slopes[1:]:
        for x, y in zip(slopes[0], other, strict=True):
            np.testing.assert_allclose(y, x, rtol=1e-9, atol=1e-9 * np.abs(x).max())


@pytest.mark.slow
def test_an_execution_is_chosen_by_name():
    chain = trees.build([(-1, dx.Free()), (0, dx.Revolute((0.0, 1.0, 0.0))), (1, dx.Prismatic((1.0, 0.0, 1.0)))], 5)
    q, v, _, tau, external = (x[0] for x in trees.states(chain, 1))
    expected = dx.forward_dynamics(chain, q, v, tau, external)
    slope = jax.grad(lambda v: dx.forward_dynamics(chain, q, v, tau).sum())(v)
    for execution in ("bodies", "segments", "associative"):
        found = dx.forward_dynamics(chain, q, v, tau, external, execution=execution)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
        other = jax.grad(lambda v, e=execution: dx.forward_dynamics(chain, q, v, tau, execution=e).sum())(v)
        np.testing.assert_allclose(other, slope, rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match=r"'chains'.*levels, bodies, segments, associative"):
        dx.forward_dynamics(chain, q, v, tau, execution="chains")
    branched = trees.tree("arm")
    zero = np.zeros(branched.nv)
    with pytest.raises(ValueError, match="not one unbranched chain"):
        dx.forward_dynamics(branched, zero, zero, zero, execution="associative")

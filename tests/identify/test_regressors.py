"""Regressors against the equations they are linear forms of, and against an engine that is not ours."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees
from constraints.mechanisms import four_bar
from identify.robots_of import add_chain, closed
from oracles.robots import example_robots
from oracles.test_pinocchio import PARAMETERS

import dynax as dx
from dynax import identify
from dynax.identify.terms import TERMS

pin = pytest.importorskip("pinocchio")


def close(found, expected, tolerance=1e-10):
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=tolerance * (1.0 + np.max(np.abs(expected))))


def varied(model: dx.Model, key: jax.Array) -> dx.Model:
    """The same joints with all numbers moved: placements, bodies, friction, springs and gravity."""
    zero = dx.parameters(model)
    keys = jax.random.split(key, len(zero))
    return dx.with_parameters(
        model, {n: 0.2 * jax.random.normal(k, x.shape, x.dtype) for k, (n, x) in zip(keys, zero.items(), strict=True)}
    )


@pytest.mark.spec("ID-01")
def test_regressors_of_random_trees(key):
    """Two hundred sets of numbers for a tree with every type of joint, drives included."""
    agree(trees.tree("mixed"), key, 200)


@pytest.mark.slow
@pytest.mark.spec("ID-01")
@pytest.mark.parametrize("seed", range(4))
def test_regressors_of_trees_of_other_shapes(key, seed):
    """The same joints in another order, on parents drawn at random."""
    rng = np.random.default_rng(seed)
    joints = [trees.MIXED[k][1] for k in rng.permutation(len(trees.MIXED))]
    parents = [max(parent, -1) for parent in trees.random_parents(rng, len(joints), bases=2)]
    agree(trees.build(list(zip(parents, joints, strict=True)), seed=seed), key, 50)


def agree(model: dx.Model, key: jax.Array, count: int) -> None:
    s = trees.states(model, count)

    def one(key, q, v, a):
        own = varied(model, key)
        y = identify.regressor(own, q, v, a, terms=TERMS)
        return y @ identify.parameter_vector(own, TERMS), dx.inverse_dynamics(own, q, v, a)

    found, expected = jax.vmap(one)(jax.random.split(key, count), s.q, s.v, s.a)
    close(found, expected)


@pytest.mark.spec("ID-01", "ID-15")
def test_other_forms_of_the_equations():
    """Energy, power and momentum of floating trees, and the wrench on their base."""
    builder = dx.ModelBuilder()
    add_chain(builder, "arm", [dx.Free(), dx.Revolute((0.0, 1.0, 0.0)), dx.Revolute((1.0, 0.0, 0.0))])
    model = builder.build()
    s = trees.states(model, 20)
    pi = dx.inertial_parameters(model).reshape(-1)

    def one(q, v, a):
        tau, c = dx.inverse_dynamics(model, q, v, a), dx.coriolis_matrix(model, q, v)
        mass = dx.mass_matrix(model, q)
        found = (
            identify.energy_regressor(model, q, v) @ pi,
            identify.power_regressor(model, q, v, a) @ pi,
            identify.momentum_regressor(model, q, v) @ pi,
            identify.momentum_rate_regressor(model, q, v) @ pi + tau,
            identify.base_wrench_regressor(model, q, v, a) @ pi,
        )
        energy = dx.kinetic_energy(model, q, v) + dx.potential_energy(model, q)
        return found, (energy, v @ tau, mass @ v, (c + c.T) @ v + mass @ a, tau[:6])

    found, expected = jax.vmap(one)(s.q, s.v, s.a)
    for x, y in zip(found, expected, strict=True):
        close(x, y)


@pytest.mark.spec("ID-01")
def test_regressors_are_those_of_pinocchio(rng):
    path = str(example_robots()["panda_description/urdf/panda.urdf"])
    model, theirs = dx.load(path), pin.buildModelFromUrdf(path)
    data = theirs.createData()
    columns = (10 * np.arange(theirs.nv)[:, None] + PARAMETERS).ravel()
    states = rng.normal(size=(5, 3, model.nv))
    found = jax.vmap(lambda s: identify.regressor(model, *s))(jnp.asarray(states))
    energies = jax.vmap(lambda s: identify.energy_regressor(model, s[0], s[1]))(jnp.asarray(states))
    assert list(model.joint_names) == list(theirs.names)[1:]
    for ours, energy, (q, v, a) in zip(found, energies, states, strict=True):
        close(ours, pin.computeJointTorqueRegressor(theirs, data, q, v, a)[:, columns])
        row = pin.computeKineticEnergyRegressor(theirs, data, q, v) + pin.computePotentialEnergyRegressor(
            theirs, data, q
        )
        close(energy, row[columns])


@pytest.mark.spec("ID-02", "ID-14")
@pytest.mark.parametrize(
    ("lengths", "count"), [((5.0, 12.0, 11.0, 10.0), 8), ((5.0, 10.0, 5.0, 10.0), 3)], ids=["general", "parallelogram"]
)
def test_loops_project_the_rows_of_the_tree(lengths, count, rng):
    """`G^T Y` with the constraints' own `G` is the embedded model's regressor, drives on every joint; and of the bodies
    one torque on the crank, with gravity in the plane, shows as many parameters as are known of four-bars."""
    bars = four_bar(lengths)
    rates = jnp.asarray(rng.uniform(0.1, 1.0, bars.model.nv))
    model = bars.model.replace(damping=rates, armature=2.0 * rates, friction_loss=0.3 * rates, stiffness=rates)
    embedded = dx.embed(model, bars.q, independent=["crank_joint"])
    choice = dx.choose_independent(dx.constraint_jacobian(model, dx.assemble(model, bars.q).q), independent=[0], rank=2)

    def one(q, v, a):
        jacobian = dx.constraint_jacobian(model, q)
        velocity = dx.explicit_constraints(jacobian, choice=choice).matrix @ v
        explicit = dx.explicit_constraints(jacobian, dx.constraint_bias(model, q, velocity), choice=choice)
        acceleration = explicit.matrix @ a + explicit.offset
        projected = explicit.matrix.T @ identify.regressor(model, q, velocity, acceleration, terms=TERMS)
        own = identify.regressor(embedded, q, v, a, terms=TERMS)
        return own, projected, own @ identify.parameter_vector(embedded, TERMS), dx.inverse_dynamics(embedded, q, v, a)

    q = jnp.asarray(closed(lengths, rng.uniform(0.3, 2.8, 60)))
    own, projected, tau, expected = jax.vmap(one)(q, *jnp.asarray(rng.normal(size=(2, 60, 1))))
    close(own, projected, 1e-9)
    close(tau, expected)
    assert identify.identifiability_of(own[..., :30], identify.parameter_names(embedded)).rank == count


def test_values_go_into_a_model_and_out_again(rng):
    builder = dx.ModelBuilder()
    add_chain(builder, "arm", [dx.Free(), dx.Revolute((0.0, 1.0, 0.0)), dx.Universal((0, 0, 1), (0, 1, 0))])
    model = builder.build()
    terms = TERMS[:-1]
    names = identify.parameter_names(model, terms)
    values = rng.uniform(0.1, 1.0, len(names))
    close(identify.parameter_vector(identify.with_parameter_vector(model, values, terms), terms), values, 1e-15)
    assert names[-3:] == ("stiffness of arm/1_joint", "stiffness of arm/2_joint[0]", "stiffness of arm/2_joint[1]")
    assert len(names) == 30 + 4 * 3

"""States that are none, and how that is said."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx


@pytest.fixture(scope="module")
def robot():
    builder = dx.ModelBuilder()
    body = dx.SpatialInertia(1.0, (0.0, 0.0, 0.1), (0.1, 0.1, 0.1))
    builder.body("base", joint=dx.Free(), inertia=body)
    builder.body("arm", parent="base", joint=dx.Revolute((0, 0, 1)), inertia=body, joint_name="shoulder")
    builder.body("hand", parent="arm", joint=dx.Spherical(), inertia=body, joint_name="wrist")
    return builder.build()


def test_states_pass_as_they_are(robot):
    for key in jax.random.split(jax.random.key(0), 5):
        q = dx.random_configuration(robot, key)
        found, v = dx.check_state(robot, q, jnp.ones(robot.nv))
        np.testing.assert_array_equal(found, q)
        np.testing.assert_array_equal(v, 1.0)
    assert dx.check_state(robot, dx.neutral(robot))[1] is None


def faulty(robot, fault):
    q, v = np.array(dx.neutral(robot)), np.zeros(robot.nv)
    if fault == "zeros":
        q[robot.q_slice("wrist")] = 0.0
    elif fault == "length":
        q[robot.q_slice("wrist")] *= 1.1
    elif fault == "q":
        q[robot.q_slice("shoulder")] = np.nan
    else:
        v[robot.v_slice("shoulder")] = np.inf
    return q, v


FAULTS = {
    "zeros": "quaternion of joint 'wrist' is not of unit length: dx.normalize",
    "length": "quaternion of joint 'wrist' is not of unit length: dx.normalize",
    "q": "`q` of joint 'shoulder' is not finite",
    "v": "`v` of joint 'shoulder' is not finite",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_no_state_is_named(robot, fault):
    with pytest.raises(ValueError, match=FAULTS[fault]):
        dx.check_state(robot, *faulty(robot, fault))


def test_inside_compiled_programs(robot):
    """Under `jit`, `vmap` and `grad`, when the program runs."""

    def energy(q, v):
        q, v = dx.check_state(robot, q, v)
        return dx.kinetic_energy(robot, q, v)

    good, bad = (dx.neutral(robot), jnp.ones(robot.nv)), faulty(robot, "length")
    slope = jax.jit(jax.vmap(jax.grad(energy, argnums=1)))
    expected = dx.mass_matrix(robot, good[0]) @ good[1]
    np.testing.assert_allclose(slope(*(x[None] for x in good))[0], expected, rtol=1e-12)
    with pytest.raises(jax.errors.JaxRuntimeError, match="quaternion of joint 'wrist'"):
        jax.block_until_ready(slope(*(jnp.stack([a, b]) for a, b in zip(good, bad, strict=True))))

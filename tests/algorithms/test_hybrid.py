"""Prescribed, locked and driven joints."""

from __future__ import annotations

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
import routes
import trees

import dynax as dx

SMALL = (
    (-1, dx.Revolute((0.0, 1.0, 0.3))),
    (0, dx.Helical((1.0, 0.0, 0.2), pitch=0.1)),
    (0, dx.Reversed(dx.Prismatic((1.0, 0.0, 1.0)))),
)


def by_numpy(mass, bias, tau, a, given):
    """The four steps of section 9.1, dense."""
    a = np.where(given, a, 0.0)
    free = ~given
    a[free] = np.linalg.solve(mass[np.ix_(free, free)], (tau - bias - mass @ a)[free])
    return a, np.where(given, mass @ a + bias, tau)


SUBSETS = [
    pytest.param(subset, marks=[] if subset in ((), (0,), (0, 2), (0, 1, 2)) else [pytest.mark.slow])
    for count in range(4)
    for subset in combinations(range(3), count)
]


@pytest.mark.spec("RBDA-9.1-HYB", "RBDA-9.2-ABAHYB", "RBDA-9.1-ALG", "RBDA-X-TREE")
@pytest.mark.parametrize("subset", SUBSETS, ids=str)
def test_all_subsets_of_a_small_tree(subset):
    model = trees.build(SMALL, 4)
    q, v, a, tau, external = (x[0] for x in trees.states(model, 1))
    mass, bias = np.asarray(dx.mass_matrix(model, q)), np.asarray(dx.bias_force(model, q, v, external))
    given = np.isin(np.arange(model.nv), subset)
    prescribed = tuple(model.joint_names[k] for k in subset)
    expected = by_numpy(mass, bias, np.asarray(tau), np.asarray(a), given)
    result = dx.hybrid_dynamics(model, q, v, tau, a, prescribed, external)
    np.testing.assert_allclose(result[0], expected[0], rtol=1e-9)
    np.testing.assert_allclose(result[1], expected[1], rtol=1e-9)
    if len(subset) == 2:
        other = dx.hybrid_dynamics_by_matrix(model, q, v, tau, a, prescribed, external)
        np.testing.assert_allclose(other[0], expected[0], rtol=1e-9)
        np.testing.assert_allclose(other[1], expected[1], rtol=1e-9)
    if 2 in subset:  # a massless body may be prescribed: nothing divides by its inertia
        ghost = model.replace(**{k: getattr(model, k).at[2].set(0.0) for k in ("mass", "com", "inertia", "armature")})
        assert np.all(np.isfinite(dx.hybrid_dynamics(ghost, q, v, tau, a, prescribed, external)[0]))
    # None prescribed is forward dynamics, all prescribed is inverse dynamics.
    if not subset:
        np.testing.assert_allclose(result[0], dx.forward_dynamics(model, q, v, tau, external), rtol=1e-10)
    if len(subset) == 3:
        np.testing.assert_allclose(result[1], dx.inverse_dynamics(model, q, v, a, external), rtol=1e-10)


@pytest.mark.spec("RBDA-9.1-HYB", "RBDA-9.5-ID")
def test_joints_prescribed_on_a_floating_base():
    """Hybrid dynamics with all joints but the base prescribed is floating-base inverse dynamics."""
    model, s, _ = routes.case("screws")
    tau = s.tau.at[:, :6].set(0.0)
    a, forces = jax.jit(
        jax.vmap(lambda q, v, tau, a, e: dx.hybrid_dynamics(model, q, v, tau, a, model.joint_names[1:], e))
    )(s.q, s.v, tau, s.a, s.external)
    base, joints = jax.jit(jax.vmap(lambda q, v, a, e: dx.floating_inverse_dynamics(model, q, v, a[6:], e)))(
        s.q, s.v, s.a, s.external
    )
    np.testing.assert_allclose(a[:, :6], base, rtol=1e-8)
    np.testing.assert_allclose(forces[:, 6:], joints, rtol=1e-8, atol=1e-9)


def arm(joint, rng, hold=None):
    """Three bodies; the middle one hangs by `joint`, or by a weld where `hold` says."""
    inertias, poses = [trees.random_inertia(rng) for _ in range(3)], [trees.random_pose(rng) for _ in range(3)]
    middle = poses[1] if hold is None else poses[1] @ hold
    return (
        dx.ModelBuilder()
        .body("a", joint=dx.Revolute((0, 1, 0)), placement=poses[0], inertia=inertias[0])
        .body("b", parent="a", joint=joint, placement=middle, inertia=inertias[1])
        .body("c", parent="b", joint=dx.Revolute((1, 0, 0)), placement=poses[2], inertia=inertias[2])
        .build()
    )


def slide(t):
    return 0.3 * jnp.sin(2.0 * t) + 0.2 * t * t


@pytest.mark.spec("RBDA-3.4-RHEO", "RBDA-4.4-TIME")
def test_a_driven_joint_is_a_prescribed_one():
    driven = arm(dx.Driven(dx.Prismatic((1, 1, 0)), slide), np.random.default_rng(1)).at_time(0.7)
    plain = arm(dx.Prismatic((1, 1, 0)), np.random.default_rng(1))
    time = jnp.asarray(0.7)
    position, rate = slide(time), jax.grad(slide)(time)
    acceleration = jax.grad(jax.grad(slide))(time)
    q, v, tau = jnp.array([0.4, -0.9]), jnp.array([1.1, 0.6]), jnp.array([0.5, -0.2])

    def whole(two, one):
        return jnp.stack([two[0], one, two[1]])

    full = [whole(q, position), whole(v, rate), whole(tau, 0.0), whole(jnp.zeros(2), acceleration)]
    a, forces = dx.hybrid_dynamics(plain, *full, ("b_joint",))
    mine = dx.forward_dynamics(driven, q, v, tau)
    np.testing.assert_allclose(mine, a[np.array([0, 2])], rtol=1e-10)
    reaction = dx.joint_forces(plain, full[0], full[1], a)
    np.testing.assert_allclose(dx.joint_forces(driven, q, v, mine), reaction, rtol=1e-9)
    np.testing.assert_allclose(dx.inverse_dynamics(driven, q, v, mine), tau, rtol=1e-9)
    along = np.array([1.0, 1.0, 0.0]) / np.sqrt(2.0)
    np.testing.assert_allclose(reaction[1, 3:] @ along, forces[1], rtol=1e-9)


@pytest.mark.spec("RBDA-9.1-LOCK", "RBDA-2.7-RULES")
def test_a_locked_joint_is_a_weld():
    angle = 0.8
    axis = np.array([0.0, 0.6, 0.8])
    hold = dx.Transform(np.asarray(dx.Rotation.from_axis_angle(axis, angle).matrix), np.zeros(3))
    plain, welded, kept = (
        arm(joint, np.random.default_rng(2), where)
        for joint, where in (
            (dx.Revolute(tuple(axis)), None),
            (dx.Weld(), hold),
            (dx.Driven(dx.Revolute(tuple(axis)), still), None),
        )
    )
    q, v, tau = jnp.array([0.4, -0.9]), jnp.array([1.1, 0.6]), jnp.array([0.5, -0.2])
    spread = jnp.array([[1.0, 0, 0], [0, 0, 1.0]])
    full_q = (q @ spread).at[1].set(angle)
    a, forces = dx.hybrid_dynamics(plain, full_q, v @ spread, tau @ spread, jnp.zeros(3), ("b_joint",))
    expected = dx.forward_dynamics(welded, q, v, tau)
    np.testing.assert_allclose(a, expected @ spread, atol=1e-12)
    np.testing.assert_allclose(dx.forward_dynamics(kept, q, v, tau), expected, rtol=1e-10)
    # The force that holds it: what it would take to forbid the motion.
    np.testing.assert_allclose(dx.inverse_dynamics(plain, full_q, v @ spread, a)[1], forces[1], rtol=1e-10)


def still(t):
    return 0.8 + 0.0 * t


@pytest.mark.spec("RBDA-9.1-PRESCRIBE")
def test_a_shaken_pivot_and_a_stiff_controller():
    model = problems.cart_pole(l=0.6)[0]
    # A pendulum on a pivot with acceleration A along x: l w' = g sin - A cos.
    q, v, a = jnp.array([0.3, 0.5]), jnp.array([0.2, 1.5]), jnp.array([7.0, 0.0])
    result, _ = dx.hybrid_dynamics(model, q, v, jnp.zeros(2), a, ("cart_joint",))
    np.testing.assert_allclose(result[1], (problems.G * np.sin(0.5) - 7.0 * np.cos(0.5)) / 0.6, rtol=1e-12)

    def path(t):
        return 0.1 * jnp.sin(5.0 * t)

    def ideal(t, q, v):
        given = jnp.stack([-2.5 * jnp.sin(5.0 * t), 0.0 * t])
        return dx.hybrid_dynamics(model, q, v, jnp.zeros(2), given, ("cart_joint",))[0]

    def controlled(gain):
        def law(t, q, v):
            force = gain * (path(t) - q[0]) + 2.0 * jnp.sqrt(gain) * (0.5 * jnp.cos(5.0 * t) - v[0])
            return dx.forward_dynamics(model, q, v, jnp.stack([force, 0.0 * force]))

        return law

    def run(law, dt=2e-4, steps=2500):
        def step(state, k):
            q, v = state
            middle = q + 0.5 * dt * v, v + 0.5 * dt * law(k * dt, q, v)
            return (q + dt * middle[1], v + dt * law((k + 0.5) * dt, *middle)), None

        start = jnp.array([0.0, 2.0]), jnp.array([0.5, 0.0])
        return jax.jit(lambda: jax.lax.scan(step, start, jnp.arange(steps) * 1.0)[0][0])()

    exact = run(ideal)
    errors = [float(np.abs(run(controlled(gain)) - exact).max()) for gain in (1e4, 1e5)]
    assert errors[1] < 0.5 * errors[0] < 1e-2
    np.testing.assert_allclose(exact[0], path(0.5), atol=1e-5)


def test_one_of_two_floating_bodies_is_led():
    """The other one falls: what is prescribed for one root holds no other."""
    builder = dx.ModelBuilder()
    for name in ("led", "free"):
        builder.body(name, joint=dx.Free(), inertia=dx.SpatialInertia(2.0, (0.1, 0.0, 0.2), (0.1, 0.2, 0.25)))
    model = builder.build()
    q, v, a, tau, _ = (x[0] for x in trees.states(model, 1))
    mass, bias = np.asarray(dx.mass_matrix(model, q)), np.asarray(dx.bias_force(model, q, v))
    expected = by_numpy(mass, bias, np.asarray(tau), np.asarray(a), np.arange(12) < 6)
    result = dx.hybrid_dynamics(model, q, v, tau, a, ("led_joint",))
    np.testing.assert_allclose(result[0], expected[0], rtol=1e-9)
    np.testing.assert_allclose(result[1], expected[1], rtol=1e-9)

"""Gears, differentials and conditions of the user's own (sections 3.4 and 9.6)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constraints.facts import admissible, close, facts, solution
from constraints.mechanisms import HINGE, at, rod

import dynax as dx
from dynax.constraints.actuation import actuated_inverse_dynamics
from dynax.constraints.explicit import choose_independent, explicit_constraints

pytestmark = pytest.mark.slow

R1, R2 = 5.0, 8.0


@pytest.fixture(scope="module")
def arm():
    """Two links and their motors, `q2 = R1 q1` and `q4 = R2 q3`, bodies 1 and 2 on the ground, 3 and 4 on the first."""
    builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0))
    parents = ("world", "world", "one", "one")
    for name, parent in zip(("one", "two", "three", "four"), parents, strict=True):
        place = at() if parent == "world" else at(0.5)
        inertia = rod(0.5, 1.2) if name in ("one", "three") else dx.SpatialInertia(0.2, (0, 0, 0), (1e-3, 1e-3, 2e-3))
        builder.body(name, parent=parent, joint=HINGE, placement=place, inertia=inertia, joint_name=name)
    builder.gear("two", "one", ratio=R1, offset=0.3)
    builder.gear("four", "three", ratio=R2)
    model = builder.build()
    q = np.array([0.4, 0.4 * R1 + 0.3, -0.7, -0.7 * R2])
    v = np.array([1.1, 1.1 * R1, 0.6, 0.6 * R2])
    return model, q, v, facts(model, q, v)


@pytest.mark.spec("RBDA-9.6-GEAR")
def test_geared_arm(arm, rng):
    """`G^T H G`, motion with motors, and inverse dynamics for the motors, as from the implicit rows."""
    model, q, v, f = arm
    close(f.phi, 0.0, 1e-14)
    close(f.rate, 0.0, 1e-13)
    found = explicit_constraints(f.k, f.bias, choose_independent(f.k, independent=[0, 2]))
    g = np.asarray(found.matrix)
    close(g, [[1, 0], [R1, 0], [0, 1], [0, R2]], 1e-15)
    close(found.offset, 0.0, 1e-15)
    h, reduced = f.h, g.T @ f.h @ g
    printed = [[h[0, 0] + R1**2 * h[1, 1], h[0, 2] + R2 * h[0, 3]], [h[2, 0] + R2 * h[3, 0], h[2, 2] + R2**2 * h[3, 3]]]
    assert h[1, 2] == h[1, 3] == h[2, 3] == 0.0  # branches that share no joint
    close(reduced, printed, 1e-13)
    tau = np.array([0.0, 0.7, 0.0, -0.2])
    y = np.linalg.solve(reduced, g.T @ (tau - f.c))
    a = np.asarray(dx.constrained_dynamics(model, q, v, tau).a)
    close(a, g @ y, 1e-11)
    needed = actuated_inverse_dynamics(model, q, v, a, actuated=("two", "four"))
    close(needed.tau, tau, 1e-10)
    assert bool(needed.properly_actuated)


@pytest.mark.spec("RBDA-9.6-SPARSEG")
def test_products_with_a_sparse_gear_matrix(arm):
    """`G^T H G`: 5 products and 3 sums where zeros and ones are known, 44 and 33 in full matrices."""

    class Count(float):
        """A number that counts, and knows when a product or a sum needs no work."""

        work = {"m": 0, "a": 0}  # noqa: RUF012

        def __mul__(self, other):
            if float(self) in (0.0, 1.0) or float(other) in (0.0, 1.0):
                return Count(float(self) * float(other))
            Count.work["m"] += 1
            return Count(float(self) * float(other))

        def __add__(self, other):
            if float(self) != 0.0 and float(other) != 0.0:
                Count.work["a"] += 1
            return Count(float(self) + float(other))

    *_, f = arm
    h, (r1, r2) = f.h, (Count(R1), Count(R2))
    entries = [
        Count(h[0, 0]) + r1 * (r1 * Count(h[1, 1])),
        Count(h[0, 2]) + r2 * Count(h[0, 3]),
        Count(h[2, 2]) + r2 * (r2 * Count(h[3, 3])),
    ]
    assert Count.work == {"m": 5, "a": 3}
    g = np.array([[1, 0], [R1, 0], [0, 1], [0, R2]])
    close([float(x) for x in entries], (g.T @ h @ g)[[0, 0, 1], [0, 1, 1]], 1e-13)
    n, m = 4, 2
    assert n * n * m + n * m * (m + 1) // 2 == 44
    assert n * m * (n - 1) + (n - 1) * m * (m + 1) // 2 == 33


@pytest.mark.spec("RBDA-9.6-NONLIN", "RBDA-3.4-STRING")
def test_cams_differentials_and_a_string(rng):
    """One model with all of them: rates, power, and what a string among three bodies keeps.

    A cam `q2 = rho(q1)`, a bevel differential `q_c = (q_a + q_b) / 2`, and three discs on slides in a taut belt
    `l1 + l2 + l3 + 2 pi r = p`.
    """
    builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0))
    for name in ("cam", "follower", "a", "b", "c"):
        builder.body(name, joint=HINGE, inertia=rod(0.5), joint_name=name)
    for k, direction in enumerate(((1.0, 0.0, 0.0), (0.3, 1.0, 0.0), (-1.0, 0.2, 0.0))):
        builder.body(f"disc{k}", joint=dx.Prismatic(direction), inertia=dx.SpatialInertia(1.0 + k))

    def rho(x):
        return jnp.sin(x) + 0.2 * x**2

    def length(model, q):
        points = dx.forward_kinematics(model, q).translation[5:]
        sides = points - jnp.roll(points, 1, axis=0)
        return jnp.sum(jnp.sqrt(jnp.sum(sides**2, axis=1))) + 2 * jnp.pi * 0.1 - 6.0

    builder.gear("follower", "cam", ratio=1.5, function=rho)
    builder.gear("c", ("a", "b"), ratio=(0.5, 0.5))
    builder.condition("belt", length)
    model = builder.build()
    q = np.asarray(dx.assemble(model, [0.4, 0.0, 0.3, 0.5, 0.0, 1.2, 1.4, 1.1]).q)
    f = facts(model, q, rng.normal(size=8))
    close(f.phi, 0.0, 1e-13)
    v = admissible(f.k, rng.normal(size=8))
    f = facts(model, q, v)
    close(f.rate, 0.0, 1e-12)
    # The cam's second derivative is in `k`.
    close(v[1], 1.5 * float(jax.grad(rho)(q[0])) * v[0], 1e-12)
    close(f.bias[0], 1.5 * float(jax.grad(jax.grad(rho))(q[0])) * v[0] ** 2, 1e-12)
    tau = rng.normal(size=8)
    found = dx.constrained_dynamics(model, q, v, tau)
    a, push = solution(f, tau)
    close(found.a, a)
    close(found.force, push)
    # The differential splits its torque evenly, and no constraint has any power.
    close(push[2], push[3])
    close(push[4], -2 * push[2])
    close(push @ v, 0.0)
    assert np.all(np.abs(push[5:]) > 1e-3)  # three bodies bear the belt at once
    dt = 2e-3

    @jax.jit
    def go(q, v):
        def step(state, _):
            def rate(s):
                return s[1], dx.constrained_dynamics(model, *s, jnp.zeros(8)).a

            def stages(k, h):
                new = rate(jax.tree.map(lambda x, y: x + h * y, state, k))
                return new, new

            _, later = jax.lax.scan(stages, jax.tree.map(jnp.zeros_like, state), jnp.array([0.0, dt / 2, dt / 2, dt]))
            moved = jax.tree.map(lambda x, k: x + dt / 6 * (k[0] + 2 * k[1] + 2 * k[2] + k[3]), state, later)
            return moved, moved

        return jax.lax.scan(step, (q, v), length=250)[1]

    qs, vs = (np.asarray(x)[::25] for x in go(jnp.asarray(q), jnp.asarray(v)))
    along = facts(model, qs, vs)
    close(along.phi, 0.0, 1e-6)
    energy = jax.vmap(lambda q, v: dx.kinetic_energy(model, q, v) + dx.potential_energy(model, q))(qs, vs)
    assert np.ptp(energy) < 1e-6
    assert np.ptp(qs[:, 5]) > 0.02


@pytest.mark.spec("RBDA-9.6-ROTOR")
def test_rotor_inertia_on_the_diagonal(rng):
    """`rho^2 I_motor` as armature is the exact gear for a symmetric rotor on the same carrier, but for its spin.

    On the ground, about a parallel axis, the two are one, in ABA and CRBA; on a link that turns across the axis the
    difference is the rotor's gyroscopic torque.
    """
    ratio, spin = 20.0, 2e-4

    def model(geared: bool, carried: bool):
        builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0))
        parent = "world"
        if carried:
            builder.body("turret", joint=dx.Revolute((0, 1, 0)), inertia=rod(0.4, 3.0))
            parent = "turret"
        rotor = dx.SpatialInertia(0.3, (0, 0, 0), (1e-4, 1e-4, spin))
        if geared:
            builder.body("motor", parent=parent, joint=HINGE, inertia=rotor, joint_name="motor")
        elif carried:
            builder.body("motor", parent=parent, inertia=rotor)
        builder.body("link", parent=parent, joint=HINGE, inertia=rod(0.5, 1.0), joint_name="link",
                     armature=0.0 if geared else ratio**2 * spin)  # fmt: skip
        if geared:
            builder.gear("motor", "link", ratio=ratio)
        return builder.build()

    exact, simple = model(True, False), model(False, False)
    f = facts(exact, [0.3 * ratio, 0.3], [0.7 * ratio, 0.7])
    a = solution(f, [0.0, 2.0])[0]
    g = facts(simple, [0.3], [0.7])
    close(a[1], (2.0 - g.c) / g.h[0], 1e-12)
    close(dx.forward_dynamics(simple, [0.3], [0.7], [2.0]), (2.0 - g.c) / g.h[0], 1e-12)
    exact, simple = model(True, True), model(False, True)
    turret, link = 1.5, 0.7
    f = facts(exact, [0.2, 0.3 * ratio, 0.3], [turret, link * ratio, link])
    g = facts(simple, [0.2, 0.3], [turret, link])
    basis = np.array([[1, 0], [0, ratio], [0, 1.0]])
    reduced = basis.T @ f.h @ basis
    # Turning together with the link the rotor also counts once; across, the same.
    close(reduced[0, 0], g.h[0, 0], 1e-12)
    close(reduced[1, 1], g.h[1, 1], 1e-12)
    # The turret feels nothing of the spin here: its axis is fixed, and the rotor's is carried round across it.
    close((basis.T @ f.c), g.c, 1e-12)
    states = ([0.2, 0.3 * ratio, 0.3], [turret, link * ratio, link]), ([0.2, 0.3], [turret, link])
    borne = [np.asarray(dx.joint_forces(m, *x, np.zeros(m.nv))) for m, x in zip((exact, simple), states, strict=True)]
    gyroscopic = spin * ratio * link * turret
    close(np.linalg.norm(borne[0][0][:3] - borne[1][0][:3]), gyroscopic, 1e-12)

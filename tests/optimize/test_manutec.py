"""The Manutec r3 (Otter & Tuerk 1988, DFVLR model 2), whose rotors stand in its links: the robot of OC-19 and OC-20.

Its equations are written out here, by kinetic energy, and compared with dynax's: a robot of six bodies and three gears.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from optimize.standard import converged, near

import dynax as dx
from dynax import optimize as o

ROTOR, RATIOS = 1.3e-3, np.array([-105.0, 210.0, 60.0])
MASS, COM = (1.0, 56.5, 60.3), ((0.0, 0.0, 0.0), (0.172, 0.0, 0.205), (0.028, 0.0, 0.202))
CENTRAL = [
    np.diag([1.0, 1.0, 1.16]),  # it turns about z alone
    np.array([[2.58, 0.0, -0.46], [0.0, 2.73, 0.0], [-0.46, 0.0, 0.64]]),
    np.array([[5.41, 0.0, 0.33], [0.0, 5.60, 0.0], [0.33, 0.0, 0.39]]),
]
UPPER = 0.5
"""The length of link 2 [m]."""
# Rotors add this to the mass matrix: 2 and 3 turn about one direction, in which link 2 carries the rotor of joint 3.
ADDED = ROTOR * np.diag(RATIOS**2)
ADDED[1, 2] = ADDED[2, 1] = ROTOR * RATIOS[2]
CHECKS = (
    ((0.3, -0.7, 0.9), (0.5, -1.0, 2.0), (100.0, -200.0, 50.0), (3.20644904, -6.09323425, 11.14818727)),
    ((0.0, -1.5, 0.0), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), (-0.01971065, -4.82505557, -4.09980087)),
)
"""Configuration, velocity, joint forces; the acceleration by the code of 1988."""


def mass_matrix(q: jax.Array) -> jax.Array:
    s2, c2, s3, c3, s23, c23 = (f(x) for x in (q[1], q[2], q[1] + q[2]) for f in (jnp.sin, jnp.cos))
    zero, one = jnp.zeros_like(s2), jnp.ones_like(s2)
    # Rates of links 2 and 3 and the velocity of joint 3, in axes of the link, by joint velocities.
    second = jnp.stack([jnp.stack(row) for row in ((zero, one, zero), (s2, zero, zero), (c2, zero, zero))])
    third = jnp.stack([jnp.stack(row) for row in ((zero, one, one), (s23, zero, zero), (c23, zero, zero))])
    rows = (UPPER * s2, zero, zero), (zero, -UPPER * c3, zero), (zero, UPPER * s3, zero)
    joint = jnp.stack([jnp.stack(row) for row in rows])
    about = CENTRAL[1] + MASS[1] * (np.dot(COM[1], COM[1]) * np.eye(3) - np.outer(COM[1], COM[1]))
    centre = joint + jnp.cross(third, np.array(COM[2])[:, None], axis=0)
    links = second.T @ about @ second + third.T @ CENTRAL[2] @ third + MASS[2] * centre.T @ centre
    return links + ADDED + np.diag([CENTRAL[0][2, 2], 0.0, 0.0])


def acceleration(q: jax.Array, v: jax.Array, force: jax.Array) -> jax.Array:
    """Lagrange's equations."""
    height = MASS[1] * COM[1][2] + MASS[2] * UPPER

    def lagrangian(q: jax.Array) -> jax.Array:
        potential = 9.81 * (height * jnp.cos(q[1]) + MASS[2] * COM[2][2] * jnp.cos(q[1] + q[2]))
        return 0.5 * v @ mass_matrix(q) @ v - potential

    M, rate = jax.jvp(mass_matrix, (q,), (v,))
    left = force - rate @ v + jax.grad(lagrangian)(q)
    # By Cramer's rule.
    turned = jnp.stack([jnp.cross(M[1], M[2]), jnp.cross(M[2], M[0]), jnp.cross(M[0], M[1])])
    return left @ turned / (M[0] @ turned[0])


def robot() -> dx.EmbeddedModel:
    """Each rotor a body in the link before its joint."""
    builder = dx.ModelBuilder(name="Manutec r3")
    axes, parent = ((0, 0, 1), (1, 0, 0), (1, 0, 0)), "world"
    for k, axis in enumerate(axes):
        place = dx.Transform.from_translation((0.0, 0.0, UPPER if k == 2 else 0.0))
        # The published moments of link 2 count the rotor that it carries.
        central = CENTRAL[k] - ROTOR * np.diag([k == 1, 0.0, 0.0])
        inertia = dx.SpatialInertia(MASS[k], COM[k], central)
        builder.body(f"link{k + 1}", parent=parent, joint=dx.Revolute(axis), placement=place, inertia=inertia)
        wheel = dx.SpatialInertia(0.0, np.zeros(3), ROTOR * np.diag(np.abs(axis)))
        builder.body(f"rotor{k + 1}", parent=parent, joint=dx.Revolute(axis), placement=place, inertia=wheel)
        builder.gear(f"rotor{k + 1}_joint", f"link{k + 1}_joint", ratio=RATIOS[k])
        parent = f"link{k + 1}"
    return dx.embed(builder.build(), independent=[f"link{k}_joint" for k in (1, 2, 3)])


@pytest.mark.slow
@pytest.mark.spec("AC-04")
def test_rotors_in_gears():
    """The equations of this file and dynax's, by the accelerations of 1988. An armature alone would be off in the third
    digit."""
    model = robot()
    dynamics = jax.jit(lambda q, v, tau: dx.forward_dynamics(model, q, v, tau))
    for q, v, force, expected in CHECKS:
        near(acceleration(jnp.array(q), jnp.array(v), jnp.array(force)), expected, 1e-8)
        joints = np.zeros(6)
        names = list(model.joint_names)
        for k in range(3):
            joints[names.index(f"link{k + 1}_joint")] = q[k]
            joints[names.index(f"rotor{k + 1}_joint")] = RATIOS[k] * q[k]
        near(dynamics(jnp.asarray(joints), jnp.array(v), jnp.array(force)), expected, 1e-8)


@pytest.mark.spec("AC-04")
def test_armatures_alone_miss_the_coupling():
    """The accelerations without the one entry that a rotor in a turning link adds."""
    builder, parent = dx.ModelBuilder(), "world"
    for k, axis in enumerate(((0, 0, 1), (1, 0, 0), (1, 0, 0))):
        place = dx.Transform.from_translation((0.0, 0.0, UPPER if k == 2 else 0.0))
        inertia = dx.SpatialInertia(MASS[k], COM[k], CENTRAL[k])
        builder.body(f"link{k}", parent=parent, joint=dx.Revolute(axis), placement=place, inertia=inertia)
        parent = f"link{k}"
    model = builder.build()
    model = model.replace(armature=jnp.asarray(ROTOR * RATIOS**2))
    q, v, force, coupled = map(jnp.array, CHECKS[0])
    near(dx.forward_dynamics(model, q, v, force), (3.20804485, -6.077193, 11.09542147), 1e-8)
    # The equations of this file have the coupling; dynax's with it are in the slow test above.
    near(acceleration(q, v, force), coupled, 1e-8)


START, MOVE = np.array([0.0, -1.5, 0.0]), np.array([1.0, -0.45, 1.0])
GEARS, FASTEST = jnp.array([-126.0, 252.0, 72.0]), np.array([3.0, 1.5, 5.2])


def move(N: int, T: float, **more) -> tuple[o.Problem, tuple]:
    """From rest to rest within the torques that the motors have, and a smooth guess."""
    goal = jnp.concatenate([jnp.asarray(START + MOVE), jnp.zeros(3)])
    problem = o.collocation(
        o.plant(lambda x, u, p: jnp.concatenate([x[3:], acceleration(x[:3], x[3:], GEARS * u)]), states=6, controls=3),
        jnp.concatenate([jnp.asarray(START), jnp.zeros(3)]),
        jnp.full(N, T / N),
        end_constraints=[o.equality(lambda x, p: x - goal)],
        lower=-7.5,
        upper=7.5,
        **more,
    )
    t = np.linspace(0.0, 1.0, N + 1)[:, None]
    smooth = np.concatenate([START + t * t * (3.0 - 2.0 * t) * MOVE, 6.0 * t * (1.0 - t) * MOVE / T], axis=1)
    return problem, o.guess(problem, smooth, np.zeros((N + 1, 3)))


@pytest.mark.slow
@pytest.mark.spec("OC-19")
def test_least_effort():
    """In 0.53 s; the torques of joint 1 are at their limits."""
    problem, guess = move(80, 0.53, costs=[o.residual(lambda x, u, p: u, 2.0)])
    result = converged(jax.jit(lambda: o.solve(problem, *guess, second_order=True, penalty=1e3))())
    near(result.cost, 20.40425, 1e-5)
    _, states, controls, _ = o.nodes(problem, result)
    assert np.max(np.abs(controls[:, 0])) > 7.5 - 1e-9
    # The other limits of the robot do not press.
    assert np.all(np.abs(states) < [2.97, 2.01, 2.86, 3.0, 1.5, 5.2])


@pytest.mark.slow
@pytest.mark.spec("OC-20")
def test_least_time():
    """Within its velocities too. Torques jump between their limits, or hold a joint at its fastest; a square that fades
    with each solution lets them bend at first, and what presses is known from the one before."""
    N = 120
    problem, guess = move(
        N,
        0.5,
        method="midpoint",
        costs=[o.cost(lambda x, u, p: 1.0 + p * jnp.sum(u * u))],
        constraints=[o.inequality(lambda x, u, p: jnp.concatenate([x[3:] / FASTEST, -x[3:] / FASTEST]) - 1.0)],
        params=0.0,
        free_time=(0.5, 2.0),
    )

    @jax.jit
    def solve(weight, guess, multipliers):
        faded = dataclasses.replace(problem, params=weight)
        return o.solve(faded, *guess, second_order=True, penalty=10.0, max_iterations=300, multipliers=multipliers)

    multipliers = o.Multipliers(jnp.zeros((N + 1, 6)), jnp.zeros(6), jnp.ones(()))
    for weight in (1e-3, 3e-4, 1e-4, 3e-5, 1.5e-5):
        result = converged(solve(weight, guess, multipliers))
        guess, multipliers = (result.controls, result.states), result.multipliers
    time, states, controls, _ = o.nodes(problem, result)
    near(time[-1], 0.49519, 1e-4)
    near(np.max(np.abs(states[:, 3:]), axis=0), FASTEST, 1e-6)
    near(np.max(np.abs(controls), axis=0), 7.5, 1e-9)
    assert np.all(np.abs(states[:, :3]) < [2.97, 2.01, 2.86])

"""SimBenchmark's cube of balls, with three a side; `benchmarks/balls.py` has six."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx
from dynax import contact as c
from dynax.simulate import TouchStatus

RADIUS, APART, SIDE = 0.1, 0.05, 3


def cube(restitution):
    material = c.Material(friction=0.0, restitution=restitution)
    builder, colliders = dx.ModelBuilder(), [c.Collider("world", c.Plane(), material=material)]
    for k in range(SIDE**3):
        builder.body(f"ball{k}", joint=dx.Translation(), inertia=dx.SpatialInertia.sphere(RADIUS, mass=10.0))
        colliders.append(c.Collider(f"ball{k}", c.Sphere(RADIUS), material=material))
    grid = np.stack(np.meshgrid(*3 * [np.arange(SIDE)], indexing="ij"), axis=-1).reshape(-1, 3)
    away = np.random.default_rng(0).uniform(-0.005, 0.005, grid.shape)
    q = (2 * RADIUS + APART) * grid + np.array([0, 0, 0.2 + RADIUS]) + away
    return c.scene(builder.build(), colliders), q.ravel()


@partial(jax.jit, static_argnames=("steps",))
def fall(scene, q, dt, steps):
    motion = dx.rollout(scene, q, jnp.zeros_like(q), jnp.zeros((steps, scene.nv), q.dtype), dt)
    energy = jax.vmap(lambda q, v: dx.kinetic_energy(scene.model, q, v) + dx.potential_energy(scene.model, q))
    return motion, energy(motion.q, motion.v)


@pytest.mark.slow
@pytest.mark.spec("T13")
def test_a_cube_of_balls_falls():
    """Without restitution they lose energy in every step and come to lie less than a thousandth of their radius deep;
    elastic ones gain the less energy the shorter steps are. All in float32."""
    deep, gained = {}, {}
    for dt in (0.008, 0.004):
        for restitution in (0.0, 1.0):
            scene, q = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), cube(restitution))
            motion, energy = fall(scene, q, jnp.float32(dt), round(1.0 / dt))
            assert np.all(np.isfinite(motion.q))
            assert np.all(motion.touch.status == TouchStatus.SOLVED)
            assert np.max(motion.touch.contacts) > 9
            deep[dt, restitution] = float(np.max(motion.touch.penetration)) / RADIUS
            gained[dt, restitution] = float(np.max(energy - np.minimum.accumulate(energy)) / energy[0])
    assert max(deep.values()) < 1e-3
    assert deep[0.004, 0.0] < 0.7 * deep[0.008, 0.0]
    assert max(gained[0.008, 0.0], gained[0.004, 0.0]) < 1e-5
    assert gained[0.004, 1.0] < 0.6 * gained[0.008, 1.0]

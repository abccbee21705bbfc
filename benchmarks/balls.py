"""SimBenchmark's 666: balls of 10 kg in a cube of `--side` that fall on the ground, without friction, all the way or
elastic: how deep they come into each other and what becomes of their energy, by the length of steps.

    python -m benchmarks.balls                        3 balls a side
    python -m benchmarks.balls --side 6 --dt 0.004    216 balls, as SimBenchmark has them

Balls of 0.2 m, 0.05 m apart and 0.2 m above the ground, moved aside by up to 5 mm at random, float32, 1 s. Without
friction they do not turn, and so each has three freedoms. SimBenchmark shows curves and no digits.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx
from dynax import contact
from dynax.simulate import Touching, TouchStatus

MASS, RADIUS, APART, HEIGHT, AWAY = 10.0, 0.1, 0.05, 0.2, 0.005
SECONDS = 1.0


def cube(side: int, restitution: float, dtype: Any = jnp.float32) -> tuple[contact.Scene, jax.Array]:
    """The scene and where it begins."""
    builder, material = dx.ModelBuilder(), contact.Material(friction=0.0, restitution=restitution)
    names = [f"ball{k}" for k in range(side**3)]
    for name in names:
        builder.body(name, joint=dx.Translation(), inertia=dx.SpatialInertia.sphere(RADIUS, mass=MASS))
    colliders = [contact.Collider(name, contact.Sphere(RADIUS), material=material) for name in names]
    ground = contact.Collider("world", contact.Plane(), material=material)
    places = (2 * RADIUS + APART) * np.stack(np.meshgrid(*3 * [np.arange(side)], indexing="ij"), axis=-1).reshape(-1, 3)
    places = places + np.array([0, 0, HEIGHT + RADIUS]) + np.random.default_rng(0).uniform(-AWAY, AWAY, places.shape)
    scene = contact.scene(builder.build(), [ground, *colliders])
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), (scene, places.ravel()))


@partial(jax.jit, static_argnames=("steps",))
def fall(scene: contact.Scene, q: jax.Array, dt: jax.Array, steps: int) -> dict[str, jax.Array]:
    """What is to be told: depths by radius, energies of all rows by the first, contacts, and the worst status."""
    own = Touching(most=4 * scene.num_bodies)
    motion = dx.rollout(scene, q, jnp.zeros_like(q), jnp.zeros((steps, scene.nv), q.dtype), dt, stepper=own)
    touch = motion.touch
    assert touch is not None
    energy = jax.vmap(lambda q, v: dx.kinetic_energy(scene.model, q, v) + dx.potential_energy(scene.model, q))(
        motion.q, motion.v
    )
    finite = jnp.all(jnp.isfinite(motion.q)) & jnp.all(jnp.isfinite(motion.v))
    deep, contacts, status = jnp.max(touch.penetration), jnp.max(touch.contacts), jnp.max(touch.status)
    return {
        "finite": finite,
        "deep": deep / RADIUS,
        "energy": energy / energy[0],
        "contacts": contacts,
        "status": status,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="A cube of balls falls on the ground")
    parser.add_argument("--side", type=int, default=3)
    parser.add_argument("--dt", default="0.008,0.004,0.002,0.001")
    parser.add_argument("--restitution", default="0,1")
    own = parser.parse_args()
    for restitution in map(float, own.restitution.split(",")):
        scene, q = cube(own.side, restitution)
        for dt in map(float, own.dt.split(",")):
            begin = time.process_time()
            found = jax.tree.map(np.asarray, fall(scene, q, jnp.float32(dt), round(SECONDS / dt)))
            energy = found["energy"]
            rise = np.max(energy - np.minimum.accumulate(energy))
            print(
                f"{own.side**3} balls, restitution {restitution:g}, dt {1e3 * dt:g} ms: "
                f"finite {bool(found['finite'])}; as deep as {100 * found['deep']:.4f} % of the radius; "
                f"energy in the end {100 * energy[-1]:.3f} %, rises by {100 * rise:.3f} %; "
                f"{found['contacts']} contacts; {TouchStatus(int(found['status'])).name}; "
                f"{time.process_time() - begin:.0f} CPU s",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""Bodies of random shapes that are dropped in heaps: is there a number that is none, energy from nowhere, a deep dent?

    python -m benchmarks.drops                                 64 scenes of 2 bodies, 32 of 5, 8 of 10
    python -m benchmarks.drops --bodies 20 --scenes 4          a heap of twenty
    python -m benchmarks.drops --mode compliant --dt 1e-4      surfaces that yield, whose springs' energy counts

Every scene has a seed of its own, `--seed` and on, and each line tells the worst and its seed. Spheres, capsules and
boxes with round edges in turn, of random sizes, densities, friction and, in steps, restitution, thrown in mid-air; 2 s,
float32.
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
from dynax.contact.motion import candidate_materials
from dynax.simulate import TouchStatus

HEAPS = ((2, 64), (5, 32), (10, 8))
"""Bodies and scenes."""
SECONDS = 2.0
ROWS = 100
"""Of a motion at which the energy is looked at."""
PITCH = 0.6
"""Of the places where bodies begin [m]; the largest is 0.54 m long."""


def heap(seed: int, bodies: int) -> tuple[contact.Scene, np.ndarray, np.ndarray, float]:
    """A scene, its beginning, and the least diameter of a body [m]."""
    rng = np.random.default_rng(seed)
    builder, colliders, q, v, sizes = dx.ModelBuilder(), [], [], [], []
    for k in range(bodies):
        radius, half, density = rng.uniform(0.05, 0.12), rng.uniform(0.05, 0.15), rng.uniform(300, 3000)
        edges = rng.uniform(0.05, 0.15, size=3)
        shape, inertia, least = (
            (contact.Sphere(radius), dx.SpatialInertia.sphere(radius, density=density), radius),
            (contact.Capsule(radius, half), dx.SpatialInertia.capsule(radius, 2 * half, density=density), radius),
            (contact.Box(edges, rounding=0.02), dx.SpatialInertia.box(2 * edges, density=density), edges.min()),
        )[k % 3]
        builder.body(f"body{k}", joint=dx.Free(), inertia=inertia)
        material = contact.Material(friction=rng.uniform(0, 1.5), restitution=rng.uniform(0, 0.8))
        colliders.append(contact.Collider(f"body{k}", shape, material=material))
        sizes.append(2 * least)
        place = PITCH * np.array([k % 2, k // 2 % 2, k // 4 + 0.7]) + rng.uniform(-0.02, 0.02, size=3)
        turn = rng.normal(size=4)
        q += [*place, *(turn / np.linalg.norm(turn))]
        v += [*rng.normal(size=3) * 3, *rng.normal(size=3)]
    scene = contact.scene(builder.build(), [contact.Collider("world", contact.Plane()), *colliders])
    return scene, np.array(q), np.array(v), min(sizes)


@partial(jax.jit, static_argnames=("steps", "mode"))
def fall(scenes: contact.Scene, q: jax.Array, v: jax.Array, dt: jax.Array, steps: int, mode: str) -> dict[str, Any]:
    """Of each scene what is to be told."""
    stepper = {"steps": dx.simulate.Touching(), "compliant": dx.simulate.Compliant()}[mode]

    def one(scene: contact.Scene, q: jax.Array, v: jax.Array) -> dict[str, Any]:
        motion = dx.rollout(
            scene, q, v, jnp.zeros((steps, scene.nv), q.dtype), dt, stepper=stepper, every=steps // ROWS
        )
        energy = jax.vmap(lambda q, v: dx.kinetic_energy(scene.model, q, v) + dx.potential_energy(scene.model, q))(
            motion.q, motion.v
        )
        if mode == "compliant":
            squares = motion.patch.normal**2 + jnp.sum(motion.patch.tangent**2, axis=2)
            energy = energy + 0.5 * squares @ candidate_materials(scene, q.dtype).stiffness
        rise = jnp.max(energy - jax.lax.cummin(energy)) / energy[0]
        finite = jnp.all(jnp.isfinite(motion.q)) & jnp.all(jnp.isfinite(motion.v))
        touch = motion.touch
        return {"finite": finite, "rise": rise, "deep": jnp.max(touch.penetration), "status": jnp.max(touch.status)}

    return jax.vmap(one)(scenes, q, v)


def measure(bodies: int, scenes: int, seed: int, dt: float, mode: str) -> bool:
    """A line; whether all scenes are as they should be."""
    made = [heap(seed + k, bodies) for k in range(scenes)]
    every, q, v = jax.tree.map(lambda *x: jnp.asarray(np.stack(x), jnp.float32), *((s, q, v) for s, q, v, _ in made))
    begin = time.process_time()
    steps = ROWS * round(SECONDS / dt / ROWS)
    found = jax.tree.map(np.asarray, fall(every, q, v, jnp.float32(dt), steps, mode))
    deep = found["deep"] / np.array([least for *_, least in made])
    bad = ~found["finite"] | (found["rise"] > 0.01) | (deep > 0.01)
    told = f"{mode}, {bodies:2} bodies, {scenes} scenes from seed {seed}: not finite {np.sum(~found['finite'])}"
    told += f"; energy rises by {100 * found['rise'].max():.3f} % (seed {seed + found['rise'].argmax()})"
    told += f"; as deep as {100 * deep.max():.3f} % of the least size (seed {seed + deep.argmax()})"
    told += "; by the worst status " + ", ".join(f"{k.name} {np.sum(found['status'] == k)}" for k in TouchStatus)
    told += f"; out of bounds {[int(k) + seed for k in np.flatnonzero(bad)]}"
    print(f"{told}; {time.process_time() - begin:.0f} CPU s", flush=True)
    return not bad.any()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bodies", type=int)
    parser.add_argument("--scenes", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dt", type=float, default=0.002)
    parser.add_argument("--mode", choices=("steps", "compliant"), default="steps")
    own = parser.parse_args()
    heaps = HEAPS if own.bodies is None else ((own.bodies, own.scenes),)
    good = [measure(bodies, scenes, own.seed, own.dt, own.mode) for bodies, scenes in heaps]
    raise SystemExit(0 if all(good) else 1)

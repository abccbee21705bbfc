"""What was this motion good at? Weights of a cost from motions that are optimal by it (inverse optimal control).

An arm of two links reaches for three targets. Its cost weighs torque, speed and how far the hand still is; only its
joint angles are seen, with noise. Of weights that are guessed the best motions are found, how these change with the
weights follows from the conditions of optimality (implicit differentiation), and Gauss and Newton's steps bring the
motions to those seen. A common factor of all weights changes no motion: that of torque is one.
"""

import argparse
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx
from dynax import optimize as o

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--quick", action="store_true", help="few knots, for a smoke test")
quick = parser.parse_args().quick
jax.config.update("jax_enable_x64", True)
KNOTS, TIME = (10, 0.5) if quick else (25, 0.5)
NOISE = 1e-3  # rad

builder = dx.ModelBuilder(gravity=(0.0, 0.0, 0.0), name="arm")
tip = dx.Transform(dx.Rotation.identity(), (0.3, 0.0, 0.0))
link = dx.SpatialInertia(1.5, (0.15, 0.0, 0.0), np.diag([1e-3, 0.012, 0.012]))
builder.body("upper", joint=dx.Revolute((0, 0, 1)), inertia=link)
builder.body("fore", parent="upper", joint=dx.Revolute((0, 0, 1)), placement=tip, inertia=link)
model = builder.build()


def missed(x, p):
    """From the hand to the target [m]."""
    turned = jnp.cumsum(x[:2])
    return 0.3 * jnp.stack([jnp.sum(jnp.cos(turned)), jnp.sum(jnp.sin(turned))]) - p["target"]


h = TIME / KNOTS
first = o.problem(
    o.plant(model),
    jnp.array([0.3, 1.4, 0.0, 0.0]),
    h,
    knots=KNOTS,
    costs=[
        o.residual(lambda x, u, p: u, h),
        o.residual(lambda x, u, p: jnp.sqrt(p["weights"][0]) * x[2:], h),
        o.residual(lambda x, u, p: jnp.sqrt(p["weights"][1]) * missed(x, p), h),
    ],
    end_constraints=[o.equality(lambda x, p: jnp.concatenate([missed(x, p), x[2:]]))],
    params={"weights": jnp.ones(2), "target": jnp.zeros(2)},
)
targets = jnp.array([[0.1, 0.45], [-0.15, 0.3], [0.4, -0.1]])


def angles(log_weights):
    """Of the joints on the way to each target, shape (3, KNOTS + 1, 2); and they again, with the solver's status."""

    def one(target):
        known = dataclasses.replace(first, params={"weights": jnp.exp(log_weights), "target": target})
        found = o.solve(known, jnp.zeros((KNOTS, 2)), penalty=100.0)
        return found.states[:, :2], found.status

    found, status = jax.vmap(one)(targets)
    return found, (found, status)


both = jax.jit(jax.jacfwd(angles, has_aux=True))
true = jnp.log(jnp.array([0.05, 20.0]))
_, (exact, status) = both(true)
assert np.all(status == o.Status.CONVERGED)


def fitted(seen):
    """The logarithms of the weights whose motions are nearest to those seen, and by how much they miss."""
    weights, least, miss = jnp.zeros(2), np.inf, np.inf
    best, size = weights, jnp.zeros(2)
    for _ in range(30):
        slope, (now, status) = both(weights)
        miss = float(jnp.linalg.norm(seen - now)) if np.all(status == o.Status.CONVERGED) else np.inf
        if miss < least:
            best, least = weights, miss
            size = jnp.linalg.lstsq(slope.reshape(-1, 2), (seen - now).reshape(-1))[0]
            size = jnp.clip(size, -2.0, 2.0)
        else:
            size = 0.5 * size
        if np.max(np.abs(size)) < 1e-7:
            break
        weights = best + size
    return best, least / np.sqrt(seen.size)


print("weights of speed and distance  true            ", *np.round(np.exp(true), 4))
for noise in (0.0, NOISE):
    seen = exact + noise * np.random.default_rng(0).normal(size=exact.shape)
    found, miss = fitted(seen)
    print(f"found, noise {noise:.0e} rad, misses {miss:.1e} rad", *np.round(np.exp(found), 4))
    if not noise:
        assert np.max(np.abs(found - true)) < 1e-5
    assert miss < 1.1 * noise + 1e-7

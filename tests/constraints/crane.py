"""A worked linkage (Featherstone 2008, figure 8.3): a crane of arm, cylinder, piston and forearm."""

from __future__ import annotations

from functools import lru_cache

import jax.numpy as jnp
import numpy as np
from constraints.mechanisms import HINGE, at, rod

import dynax as dx

L1, L2 = 1.0, 0.7


@lru_cache
def crane() -> dx.Model:
    """Arm and cylinder on the ground, piston in the cylinder, forearm on the arm; the piston pushes the arm.

    The cylinder's pivot is `l1` from the arm's, the piston's head meets the arm `l2` from it; joints 1, 2 and 4 are
    hinges, 3 a slide, 5 the hinge that closes the loop.
    """
    builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0))
    builder.body("arm", joint=HINGE, inertia=rod(1.5, 2.0), joint_name="1")
    builder.body("cylinder", joint=HINGE, placement=at(L1), inertia=rod(0.4, 0.6), joint_name="2")
    slide, head = dx.Prismatic((1, 0, 0)), rod(0.3, 0.2, (-1, 0, 0))
    builder.body("piston", parent="cylinder", joint=slide, inertia=head, joint_name="3")
    builder.body("forearm", parent="arm", joint=HINGE, placement=at(1.5), inertia=rod(1.0, 1.2), joint_name="4")
    builder.loop("5", predecessor="piston", successor="arm", joint=HINGE, successor_placement=at(L2))
    return builder.build()


def gamma(model, y):
    sine, cosine = L2 * jnp.sin(y[0]), L2 * jnp.cos(y[0]) - L1
    return jnp.stack([y[0], jnp.arctan2(sine, cosine), jnp.sqrt(sine**2 + cosine**2), y[1]])


def hand(y, rate):
    """`q`, `G` and `g` as the book has them."""
    c, s = np.cos(y[0]), np.sin(y[0])
    d = np.sqrt(L1**2 + L2**2 - 2 * L1 * L2 * c)
    u1, u2 = (L2**2 - L1 * L2 * c) / d**2, L1 * L2 * s / d
    u3, u4 = (L1**2 - L2**2) * L1 * L2 * s / d**4, (L1 * L2 * c - u2**2) / d
    q = np.array([y[0], np.arctan2(L2 * s, L2 * c - L1), d, y[1]])
    return q, np.array([[1, 0], [u1, 0], [u2, 0], [0, 1.0]]), np.array([0, u3, u4, 0]) * rate[0] ** 2


Y, RATE, TAU = np.array([0.9, -0.4]), np.array([1.3, 0.7]), np.array([3.0, -1.0, 2.0, 0.5])

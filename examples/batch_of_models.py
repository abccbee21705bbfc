"""A thousand arms that differ in mass, rolled out together: parameters are batched like states."""

import argparse
from importlib import resources

import jax
import jax.numpy as jnp

import dynax as dx

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--quick", action="store_true", help="few arms, for a smoke test")
count = 16 if parser.parse_args().quick else 1000

arm = dx.load(resources.files("dynax").joinpath("models/arm7.urdf").read_text())
print(arm)

posture = jnp.array([0.0, 0.3, 0.0, -1.6, 0.0, 1.8, 0.0])
holding = dx.gravity_force(arm, posture)  # right for the nominal arm only
masses = arm.mass * (1.0 + 0.1 * jax.random.normal(jax.random.key(0), (count, arm.num_bodies)))


def sag(mass):
    """How far the hand sinks in half a second when the arm is not as heavy as believed."""
    heavier = arm.replace(mass=mass)
    path = dx.rollout(heavier, posture, jnp.zeros(arm.nv), jnp.tile(holding, (50, 1)), dt=0.01)
    return dx.frame_pose(arm, posture, "hand").translation[2] - dx.frame_pose(arm, path.q[-1], "hand").translation[2]


sags = jax.jit(dx.batch(sag))(masses)
print(f"{count} arms: the hand sinks by {1e3 * sags.mean():.0f} mm on average, +-{1e3 * sags.std():.0f} mm")
print("which mass matters: d sag / d mass [mm/kg] =", 1e3 * jax.grad(sag)(arm.mass))

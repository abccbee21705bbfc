"""Find the damping of a robot's joints from a recorded motion, by gradient descent through the rollout."""

import argparse

import jax
import jax.numpy as jnp
import optax

import dynax as dx

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--quick", action="store_true", help="few iterations, for a smoke test")
quick = parser.parse_args().quick

builder = dx.ModelBuilder(name="double pendulum")
rod = dx.SpatialInertia(mass=1.0, com=(0.0, 0.0, -0.5), inertia=(1 / 12, 1 / 12, 0.001))
builder.body("upper", joint=dx.Revolute((0, 1, 0)), inertia=rod, damping=0.30)
below = dx.Transform.from_translation((0.0, 0.0, -1.0))
builder.body("lower", parent="upper", joint=dx.Revolute((0, 1, 0)), placement=below, inertia=rod, damping=0.05)
truth = builder.build()

start, rest, no_torque = jnp.array([1.0, -0.5]), jnp.zeros(2), jnp.zeros((200, 2))


def motion(damping):
    return dx.rollout(truth.replace(damping=damping), start, rest, no_torque, dt=0.01).q


recorded = motion(truth.damping)
optimiser = optax.adam(0.05)


@jax.jit
def improve(logs, memory):
    loss, slope = jax.value_and_grad(lambda logs: jnp.mean((motion(jnp.exp(logs)) - recorded) ** 2))(logs)
    change, memory = optimiser.update(slope, memory)
    return optax.apply_updates(logs, change), memory, loss


logs = jnp.log(jnp.array([0.1, 0.1]))
memory = optimiser.init(logs)
for iteration in range(20 if quick else 200):
    logs, memory, loss = improve(logs, memory)
    if iteration % 20 == 0:
        print(f"{iteration:4d}  misfit {float(loss):.2e}  damping {jnp.exp(logs)}")
print("true damping", truth.damping, " found", jnp.exp(logs))
if not quick:
    assert jnp.allclose(jnp.exp(logs), truth.damping, rtol=0.05)

"""Design an arm together with its motion: how long shall it be, and how shall its motor be geared?

The tip carries a kilogram along a metre of arc in a second, from rest to rest; what counts is the motor's effort and
the price of the gear. For every design the best motion is found anew; how its cost changes with the design follows from
the conditions of optimality (implicit differentiation), whatever the iterations that led there.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax

import dynax as dx
from dynax import optimize as o

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--quick", action="store_true", help="few iterations, for a smoke test")
quick = parser.parse_args().quick
jax.config.update("jax_enable_x64", True)
KNOTS = 20
ROTOR, HUB, PRICE = 1e-3, 0.05, 1e-4  # kg m^2, and (N m)^2 s for the square of the ratio


def inertia_of(length):
    """Of a hub, and a rod of a kilogram per metre with the load at its tip [kg m^2]."""
    return HUB + length**3 / 3 + length**2


builder = dx.ModelBuilder(gravity=(0.0, 0.0, 0.0), name="arm")
builder.body("arm", joint=dx.Revolute((0, 0, 1)), inertia=dx.SpatialInertia(1.0, (0, 0, 0), (1, 1, 1)))
first = builder.build()


def best_motion(design):
    """The motion of least effort for `design`, the logarithms of length and ratio."""
    length, ratio = jnp.exp(design)
    numbers = dx.inertial_parameters(first)
    mass, moment = 1.0 + length, 0.5 * length**2 + length
    numbers = numbers.at[0, 0].set(mass).at[0, 1].set(moment).at[0, 6].set(inertia_of(length))
    model = dx.with_inertial_parameters(first, numbers).replace(armature=jnp.array([ROTOR]) * ratio**2)
    problem = o.problem(
        o.plant(model, actuation=ratio[None, None]),
        jnp.zeros(2),
        1.0 / KNOTS,
        knots=KNOTS,
        costs=[o.residual(lambda x, u, p: u, 2.0 / KNOTS)],
        end_constraints=[o.equality(lambda x, p: x - p)],
        params=jnp.stack([1.0 / length, 0.0]),
    )
    return o.solve(problem, jnp.zeros((KNOTS, 1)), constraint_tolerance=1e-10)


def total(design):
    return best_motion(design).cost + PRICE * jnp.exp(2 * design[1])


def known(length, ratio):
    """The same in closed form: 12 angle^2 N^2/(N^2 - 1) is the least effort of a unit inertia."""
    effort = 12 * KNOTS**2 / (KNOTS**2 - 1) / length**2
    return effort * ((inertia_of(length) + ROTOR * ratio**2) / ratio) ** 2 + PRICE * ratio**2


design = jnp.log(jnp.array([1.0, 5.0]))
optimiser = optax.adam(0.1)
memory = optimiser.init(design)


@jax.jit
def improve(design, memory):
    value, slope = jax.value_and_grad(total)(design)
    change, memory = optimiser.update(slope, memory)
    return optax.apply_updates(design, change), memory, value, slope


_, _, value, slope = improve(design, memory)
exact = jax.grad(lambda design: known(*jnp.exp(design)))(design)
print(f"slope of the cost by the design: {slope}, in closed form {exact}")
assert jnp.allclose(slope, exact, rtol=1e-6)
for iteration in range(3 if quick else 150):
    design, memory, value, _ = improve(design, memory)
    if iteration % 50 == 0:
        print(f"{iteration:4d}  cost {float(value):.5f}  length and ratio {jnp.exp(design)}")
lengths, ratios = np.meshgrid(np.linspace(0.1, 2.0, 1000), np.linspace(1.0, 40.0, 1000))
values = known(lengths, ratios)
least = np.unravel_index(np.argmin(values), values.shape)
print(f"found {jnp.exp(design)} of cost {float(value):.5f}; ", end="")
print(f"of a million designs the best is [{lengths[least]:.4f} {ratios[least]:.4f}] of cost {values[least]:.5f}")
if not quick:
    assert abs(value / values[least] - 1) < 1e-3

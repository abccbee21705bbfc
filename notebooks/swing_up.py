# %% [markdown]
# # A pole swings up
#
# A cart on rails carries a pole that hangs. Which force on the cart makes the pole stand after two seconds, with the
# least integral of its square? There is more than one answer: many starts are solved side by side.

# %%
import dataclasses

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import dynax as dx
from dynax import optimize as o

jax.config.update("jax_enable_x64", True)

builder = dx.ModelBuilder(name="cart-pole")
cart = dx.SpatialInertia(1.0, (0, 0, 0), np.eye(3))
pole = dx.SpatialInertia(0.3, (0, 0, -0.5), np.zeros((3, 3)))  # a point at half a metre
builder.body("cart", joint=dx.Prismatic((1, 0, 0)), inertia=cart)
builder.body("pole", parent="cart", joint=dx.Revolute((0, -1, 0)), inertia=pole)
model = builder.build()

# %% [markdown]
# The problem: controls are held for 50 ms, the cost is a sum over the knots, the goal an equality at the end.

# %%
N, T = 40, 2.0
goal = jnp.array([1.0, np.pi, 0.0, 0.0])
problem = o.problem(
    o.plant(model, actuation=np.array([[1.0], [0.0]])),
    jnp.zeros(4),
    T / N,
    knots=N,
    costs=[o.residual(lambda x, u, p: u, 2.0 * T / N)],
    end_constraints=[o.equality(lambda x, p: x - p)],
    lower=-20.0,
    upper=20.0,
    params=goal,
)

# %% [markdown]
# Sixteen guesses: the straight line from start to goal, bent at random. Guesses need not obey the dynamics.

# %%
line = jnp.linspace(0.0, 1.0, N + 1)[:, None] * goal
waves = jnp.sin(np.pi * jnp.linspace(0.0, 1.0, N + 1)[:, None] * jnp.array([1.0, 2.0]))
bends = jnp.array([0.3, 1.5]) * jax.random.normal(jax.random.key(0), (16, 2, 2))


@jax.jit
def search(goal, bends):
    moved = dataclasses.replace(problem, params=goal)
    guesses = jnp.tile(line, (len(bends), 1, 1)).at[..., :2].add(waves @ bends)
    return o.multi_start(lambda x: o.solve(moved, jnp.zeros((N, 1)), x, second_order=True), guesses)


starts = search(goal, bends)
print(starts.results)
print("best:", starts.best)

# %% [markdown]
# What the best one does: the pole swings to the other side first.

# %%
time, controls = jnp.arange(N + 1) * T / N, starts.best.controls
figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(5, 3.5), layout="constrained")
above.plot(time, starts.best.states[:, :2], label=["cart [m]", "pole [rad]"])
above.legend()
below.step(time, jnp.append(controls, controls[-1]), where="post")
below.set(xlabel="time [s]", ylabel="force [N]")
plt.show()

# %% [markdown]
# What a goal elsewhere would cost: the multipliers of the goal are the slope of the least cost by it. Beside them the
# best of the same starts for goals a millimetre to either side, by the program that is compiled already.

# %%
price = -starts.best.multipliers.end
further, nearer = (search(goal.at[0].add(step), bends).best.cost for step in (1e-3, -1e-3))
print(f"slope of the least cost by the cart's place: {float(price[0]):.4f}", end=", ")
print(f"by differences {float((further - nearer) / 2e-3):.4f}")
assert jnp.allclose(price[0], (further - nearer) / 2e-3, rtol=1e-3)

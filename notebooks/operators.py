# %% [markdown]
# # Spatial operators
#
# The Spatial Operator Algebra writes the dynamics of a whole mechanism as products of a few operators. Here they are
# objects, applied by sweeps over the tree in O(n). The page is [operators.md](../docs/operators.md).

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import dynax as dx

jax.config.update("jax_enable_x64", True)

# %%
builder = dx.ModelBuilder(name="tree")
rod = dx.SpatialInertia(mass=1.0, com=(0.0, 0.0, -0.25), inertia=(0.02, 0.02, 0.001))
parents = ("world", "link0", "link1", "link2", "link1", "link4", "link5")
for k, parent in enumerate(parents):
    joint = dx.Revolute((0, 1, 0) if k % 2 else (1, 0, 0))
    placement = dx.Transform.from_translation((0.0, 0.0, -0.5 if k else 0.0))
    builder.body(f"link{k}", parent=parent, joint=joint, placement=placement, inertia=rod)
model = builder.build()
q, x = jnp.linspace(-0.6, 0.9, model.nv), jnp.ones(model.nv)
print(model)

# %% [markdown]
# ## The mass matrix as a product
#
# `phi` carries forces towards the base, its transpose carries velocities to the tips, `H` picks the hinges, `M` holds
# the inertias: `mass = H phi M phi' H'`. Nothing is multiplied out until `.dense()` asks for it.

# %%
ops = dx.spatial_operators(model, q)
mass = ops.H @ ops.phi @ ops.M @ ops.phi.T @ ops.H.T
print("is the mass matrix:", np.allclose(mass.dense(), dx.mass_matrix(model, q)))

# %% [markdown]
# ## Its factors
#
# `mass = F D F'` with `F` block triangular: the innovations factorisation. `mass.solve` is the articulated-body
# algorithm.

# %%
factored = ops.F @ ops.D @ ops.F.T
print("factors of the same matrix:", np.allclose(factored.dense(), mass.dense()))
print("solved to", jnp.abs(mass @ mass.solve(x) - x).max())

figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
for panel, (name, operator) in zip(axes, {"H φ": ops.H @ ops.phi, "mass": mass, "F": ops.F}.items(), strict=True):
    matrix = np.abs(np.asarray(operator.dense()))
    panel.imshow(np.where(matrix > 1e-12, matrix, np.nan), aspect="auto")
    panel.set(title=f"{name}, {matrix.shape[0]} x {matrix.shape[1]}", xticks=[], yticks=[])
plt.show()

# %% [markdown]
# White is a structural zero: links 3 and 6 are on different branches, and know of each other by their common ancestors
# alone.
#
# ## The operational space
#
# The inertia one feels at the tips of both branches at once, and how much they feel of each other.

# %%
space = dx.operational_space(model, q, ["link3", "link6"], frame="world_aligned")
print("rank", space.rank, "of 12: seven joints move two frames")

# %% [markdown]
# ## Determinant
#
# `log det` of the mass matrix is a sum over the diagonal blocks of `D`, in O(n); and it is differentiable.

# %%
print("log det", dx.log_determinant(model, q), np.linalg.slogdet(dx.mass_matrix(model, q))[1])
print("its gradient", jax.grad(lambda q: dx.log_determinant(model, q))(q))

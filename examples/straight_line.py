"""Find the bars of a four-bar linkage whose coupler draws a straight line, by gradient through its assembly."""

import argparse

import jax
import jax.numpy as jnp
import optax

import dynax as dx

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--quick", action="store_true", help="few iterations, for a smoke test")
parser.add_argument("--figure", help="where to draw the linkage, for example straight_line.png")
options = parser.parse_args()
jax.config.update("jax_enable_x64", True)


def at(x, y=0.0):
    return dx.Transform.from_translation((x, y, 0.0))


def bar(length):
    return dx.SpatialInertia(1.0, (0.5 * length, 0.0, 0.0), (1e-3, length**2 / 12, length**2 / 12))


# Two pivots 2 m apart, two rockers and a coupler between their ends: a chain that a hinge at the second pivot closes.
pin = dx.Revolute((0, 0, 1))
builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0), name="linkage")
builder.body("left", joint=pin, inertia=bar(2.5))
builder.body("coupler", parent="left", joint=pin, placement=at(2.5), inertia=bar(1.2))
builder.body("right", parent="coupler", joint=pin, placement=at(1.2), inertia=bar(2.5))
builder.loop("pivot", successor="right", joint=pin, predecessor_placement=at(2.0), successor_placement=at(2.5))
builder.frame("pen", body="coupler", placement=at(0.6))
first = builder.build()
guess = jnp.array([1.0, 2.2, 2.2])  # it also says which of the two ways to assemble is meant
angles = jnp.linspace(0.8, 1.2, 12)


def linkage(lengths):
    """The model with other bars: numbers change, nothing is compiled again."""
    left, coupler, right, pen = lengths
    moved = first.placements.translation.at[1, 0].set(left).at[2, 0].set(coupler)
    return first.replace(
        placements=dx.Transform(first.placements.rotation, moved),
        loop_successors=dx.Transform(first.loop_successors.rotation, jnp.zeros((1, 3)).at[0, 0].set(right)),
        frames=dx.Transform(first.frames.rotation, jnp.zeros((1, 3)).at[0, 0].set(pen)),
    )


def drawn(lengths):
    """The points of the pen at all angles of the left rocker, and how well the linkage closes there."""
    model = linkage(lengths)

    def point(angle):
        found = dx.assemble(model, guess.at[0].set(angle), hold=["left_joint"], iterations=20)
        return dx.frame_pose(model, found.q, "pen").translation[:2], found.error

    return jax.vmap(point)(angles)


def loss(lengths):
    """The mean square distance [m^2] of the points from the line that fits them best."""
    points, _ = drawn(lengths)
    x, y = (points - points.mean(0)).T
    a, b, c = x @ x, x @ y, y @ y
    spread = 0.5 * (a + c - jnp.sqrt((a - c) ** 2 + 4.0 * b**2))
    return spread / len(angles)


lengths = guessed = jnp.array([2.2, 1.4, 2.6, 0.3])
optimiser = optax.adam(0.02)
memory = optimiser.init(lengths)


@jax.jit
def improve(lengths, memory):
    value, slope = jax.value_and_grad(loss)(lengths)
    change, memory = optimiser.update(slope, memory)
    return optax.apply_updates(lengths, change), memory, value


start = float(loss(lengths))
for iteration in range(20 if options.quick else 300):
    lengths, memory, value = improve(lengths, memory)
    if iteration % 50 == 0:
        print(f"{iteration:4d}  off the line by {1e3 * float(value) ** 0.5:.2f} mm")
points, error = drawn(lengths)
length = float(jnp.linalg.norm(points[-1] - points[0]))
print(f"bars {lengths} m: a line of {length:.2f} m, straight to {1e3 * float(loss(lengths)) ** 0.5:.3f} mm")
assert float(error.max()) < 1e-9
assert float(loss(lengths)) < (1.0 if options.quick else 1e-2) * start

if options.figure:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    model = linkage(lengths)
    for angle in angles[::3]:
        q = dx.assemble(model, guess.at[0].set(angle), hold=["left_joint"]).q
        corners = jnp.concatenate([dx.forward_kinematics(model, q).translation[:, :2], jnp.array([[2.0, 0.0]])])
        axes.plot(*corners.T, "o-", color="0.85", zorder=0)
    axes.plot(*drawn(guessed)[0].T, "--", label="pen, first guess")
    axes.plot(*points.T, lw=3, label="pen, found")
    axes.set(xlabel="x [m]", ylabel="y [m]", aspect="equal")
    axes.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    figure.savefig(options.figure, dpi=90)

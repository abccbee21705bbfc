"""Reach for something low with a humanoid on one leg, whose knee a four-bar linkage drives.

A motor in the thigh turns a crank, from which a rod goes to a lever on the shank: the loop is embedded, so that the
state has the crank's angle and no conditions are left. What the ankle may push is what the sole can hold.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx
from dynax import optimize as o

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--quick", action="store_true", help="few iterations, for a smoke test")
parser.add_argument("--figure", help="where to draw the motion, for example humanoid_reach.png")
arguments = parser.parse_args()
jax.config.update("jax_enable_x64", True)

KNOTS, DT = 25, 0.04
LEG, WIDTH, TRUNK, SHOULDER, ARM, ANKLE = 0.36, 0.2, 0.45, 0.2, 0.25, 0.08  # [m]
CRANK, ROD = 0.07, 0.2
SOLE = np.array([0.1, 0.06])  # how far it goes to the front and back, and to the sides
X, Y, Z = np.eye(3)


def at(x=0.0, y=0.0, z=0.0):
    return dx.Transform.from_translation((x, y, z))


def limb(mass, length, width=0.1):
    return dx.SpatialInertia.box((width, width, abs(length)), mass=mass, com=(0.0, 0.0, 0.5 * length))


# From the foot, which stands, to both arms and the other leg: x points ahead, and each body has one hinge.
builder = dx.ModelBuilder(name="humanoid")
for name, parent, axis, place, inertia in [
    ("ankle", "world", X, at(z=ANKLE), None),
    ("shank", "ankle", Y, at(), limb(2.5, LEG)),
    ("thigh", "shank", Y, at(z=LEG), limb(4.0, LEG)),
    ("crank", "thigh", Y, at(z=0.2), dx.SpatialInertia.box((CRANK, 0.02, 0.02), mass=0.2, com=(-0.5 * CRANK, 0, 0))),
    ("rod", "crank", Y, at(-CRANK), limb(0.2, -ROD, 0.02)),
    ("hip", "thigh", Y, at(z=LEG), None),
    ("pelvis", "hip", X, at(), dx.SpatialInertia.box((0.15, 0.25, 0.12), mass=5.0, com=(0, -0.5 * WIDTH, 0.05))),
    ("trunk", "pelvis", Z, at(0, -0.5 * WIDTH, 0.1), limb(14.0, TRUNK, 0.22)),
    ("left arm", "trunk", Y, at(0, SHOULDER, 0.9 * TRUNK), limb(2.8, -2 * ARM, 0.07)),
    ("shoulder", "trunk", Y, at(0, -SHOULDER, 0.9 * TRUNK), None),
    ("right arm", "shoulder", X, at(), limb(1.6, -ARM, 0.07)),
    ("forearm", "right arm", Y, at(z=-ARM), limb(1.2, -ARM, 0.06)),
    ("other hip", "pelvis", Y, at(0, -WIDTH, 0), None),
    ("other thigh", "other hip", X, at(), limb(4.0, -LEG)),
    ("other shank", "other thigh", Y, at(z=-LEG), limb(3.0, -LEG)),
]:
    builder.body(name, parent=parent, joint=dx.Revolute(axis), placement=place, inertia=inertia, damping=0.5)
builder.loop(
    "lever",
    joint=dx.Revolute(Y),
    predecessor="shank",
    successor="rod",
    predecessor_placement=at(-0.05, 0.0, LEG - 0.02),
    successor_placement=at(z=-ROD),
)
builder.frame("hand", body="forearm", placement=at(z=-ARM))
tree = builder.build()

# Knees bent, the linkage closed, and the centre of mass above the ankle.
bent = {"shank": 0.3, "thigh": -0.6, "hip": 0.3, "forearm": -0.4, "other hip": -0.3, "other shank": 0.6}
guess = jnp.zeros(tree.nq).at[np.array([tree.body_index(name) for name in bent])].set(jnp.array(list(bent.values())))
q0 = dx.assemble(tree, guess).q


def lean(ankle):
    return dx.center_of_mass(tree, q0.at[:2].set(ankle))[:2]


ankle = q0[:2]
for _ in range(5):
    ankle = ankle - jnp.linalg.solve(jax.jacfwd(lean)(ankle), lean(ankle))
q0 = q0.at[:2].set(ankle)
model = dx.embed(tree, q0, independent=["crank_joint"])
nq, nv, weight = model.nq, model.nv, 9.81 * float(jnp.sum(tree.mass))
print(model)

hold = dx.gravity_force(model, q0)
# Pressure moves off the ankle by its moment over the weight; two thirds of the sole leave room for what is quick.
limits = np.full(nv, 90.0)
limits[:2] = weight * SOLE[::-1] * 2 / 3


def miss(x, target):
    return dx.frame_pose(tree, x[:nq], "hand").translation - target


reach = o.problem(
    o.plant(model),
    jnp.concatenate([q0, jnp.zeros(nv)]),
    DT,
    knots=KNOTS,
    costs=[
        o.residual(lambda x, u, p: u - hold, 1e-4 * DT),
        o.residual(lambda x, u, p: x[nq:], 0.02 * DT),
        o.residual(lambda x, u, p: dx.difference(model, q0, x[:nq]), 0.1 * DT),
    ],
    end_costs=[o.residual(miss, 1e3), o.residual(lambda x, p: x[nq:], 1.0)],
    lower=-limits,
    upper=limits,
    params=jnp.array([0.5, -0.2, 0.5]),
)
result = jax.jit(lambda problem, u: o.solve(problem, u, max_iterations=10 if arguments.quick else 100))(
    reach, jnp.broadcast_to(hold, (KNOTS, nv))
)
print(result)
qs, vs = result.states[:, :nq], result.states[:, nq:]
left = float(jnp.linalg.norm(miss(result.states[-1], reach.params)))
print(f"the hand goes from {dx.frame_pose(tree, q0, 'hand').translation.round(3)} to {reach.params}", end="")
print(f" but for {1e3 * left:.2f} mm")

# How the whole tree moves; what the ground bears is what its first joint does.
along = jax.vmap(lambda q: dx.embedding_matrix(model, q))(qs)
whole = jnp.einsum("kij,kj->ki", along, vs)
acceleration = jnp.diff(whole, axis=0) / DT
wrench = jax.vmap(lambda q, v, a: dx.joint_forces(tree, q, v, a)[0])(qs[:-1], whole[:-1], acceleration)
axes = jax.vmap(lambda q: dx.forward_kinematics(tree, q).rotation[0])(qs[:-1])
moment, force = (jnp.einsum("kij,kj->ki", axes, part) for part in (wrench[:, :3], wrench[:, 3:]))
pressure = jnp.stack([-moment[:, 1], moment[:, 0]], axis=1) - ANKLE * force[:, :2]
pressure = pressure / force[:, 2:]
gear = along[:, tree.body_index("thigh"), model.independent.index(tree.body_index("crank"))]
open_by = float(jnp.max(jnp.abs(jax.vmap(lambda q: dx.constraint_residual(tree, q))(qs))))
print(f"the linkage turns the knee by {gear.min():.3f} to {gear.max():.3f} of its crank, and is open by {open_by:.0e}")
most = jnp.max(jnp.abs(pressure), axis=0)
print(f"pressure under the sole within {1e3 * most} mm of the ankle; the sole ends at {1e3 * SOLE}")
assert open_by < 1e-9
if not arguments.quick:
    assert result.status == o.Status.CONVERGED
    assert left < 1e-3
    assert np.all(most < SOLE)

if arguments.figure:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), width_ratios=(1, 1.4), layout="constrained")
    chains = {
        "stands": ("ankle", "thigh", "hip", "trunk"),
        "reaches": ("trunk", "shoulder", "forearm", "hand"),
        "hangs": ("hip", "other hip", "other shank"),
        "rod": ("crank", "rod", "lever"),
    }
    for k in (0, 12, 25):
        poses = dx.forward_kinematics(tree, qs[k])
        places = dict(zip(tree.body_names, poses.translation, strict=True))
        places["hand"] = dx.frame_pose(tree, qs[k], "hand").translation
        places["lever"] = places["rod"] + poses.rotation[tree.body_index("rod")] @ jnp.array([0.0, 0.0, -ROD])
        for name, chain in chains.items():
            points = jnp.stack([places[body] for body in chain])
            colour = "C1" if name == "rod" else str(0.75 - 0.03 * k)
            left.plot(points[:, 0], points[:, 2], "o-", ms=0 if name == "rod" else 3, lw=1, c=colour)
    left.plot([-SOLE[0], SOLE[0]], [0, 0], "k", lw=3)
    left.plot(reach.params[0], reach.params[2], "x", c="C3")
    left.set(xlabel="x [m]", ylabel="z [m]", aspect="equal")
    time = np.arange(KNOTS) * DT
    right.plot(time, 1e3 * pressure, label=["pressure ahead of the ankle [mm]", "to the left of it"])
    right.plot(time, result.controls[:, 2], label="motor of the knee [N m]")
    right.set(xlabel="time [s]")
    right.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    figure.savefig(arguments.figure, dpi=90)

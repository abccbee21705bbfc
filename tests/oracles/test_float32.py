"""How many digits float32 keeps, robot by robot: errors against float64 stay within `float32_budgets.toml`.

The budgets are about twice what was measured; `python docs/make_accuracy.py --budgets` measures and writes them anew.
The state is rounded to float32 first and both precisions get it as it is then, but for quaternions, which float64 gets
normalised. Errors are those of the largest entry, over the largest entry of the state's own result.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.robots import add_chain, example_robots, forest, frictionless, generator, prefix, random_states

import dynax as dx

STATES = 20
BUDGETS = Path(__file__).parent / "float32_budgets.toml"
QUANTITIES = ("inverse dynamics", "forward dynamics", "mass matrix", "Jacobian")
ROBOTS = [
    ("panda_description/urdf/panda.urdf", "fixed"),
    ("ur_description/urdf/ur5_robot.urdf", "fixed"),
    ("allegro_hand_description/urdf/allegro_left_hand.urdf", "fixed"),
    ("tiago_description/robots/tiago_dual.urdf", "fixed"),
    ("anymal_c_simple_description/urdf/anymal.urdf", "free"),
    ("solo_description/robots/solo12.urdf", "free"),
    ("g1_description/urdf/g1_29dof_rev_1_0.urdf", "free"),
    ("simple_humanoid_description/urdf/simple_humanoid.urdf", "free"),
    ("talos_data/robots/talos_reduced.urdf", "free"),
]
CHAINS = (8, 32, 128)


def side_by_side() -> dict[str, tuple[dx.Model, str]]:
    """The robots, each as a model that holds it and the prefix of its names there."""
    files = frictionless(dx.load(forest(ROBOTS)))
    robots = {Path(name).stem: (files, prefix(k, name)) for k, (name, _) in enumerate(ROBOTS)}
    robots["anymal c"] = robots.pop("anymal")
    builder = dx.ModelBuilder(name="built")
    for links in CHAINS:
        add_chain(builder, links, start=f"chain {links}/")
    add_crane(builder, "crane/")
    built = builder.build()
    return robots | {start[:-1]: (built, start) for start in (*(f"chain {links}/" for links in CHAINS), "crane/")}


def add_crane(builder: dx.ModelBuilder, start: str) -> None:
    """A gantry with a ball-jointed arm: two slides, a ball, a telescope, a ball and a finger that slides."""
    joints = {
        "bridge": dx.Prismatic((1.0, 0.0, 0.0)),
        "trolley": dx.Prismatic((0.0, 1.0, 0.0)),
        "boom": dx.Spherical(),
        "telescope": dx.Prismatic((0.0, 0.0, 1.0)),
        "hook": dx.Spherical(),
        "finger": dx.Prismatic((1.0, 0.0, 1.0)),
    }
    parent, mass = "world", 40.0
    for name, joint in joints.items():
        builder.body(
            start + name,
            parent=parent,
            joint=joint,
            placement=dx.Transform(np.eye(3), np.array([0.1, 0.05, -0.4])),
            inertia=dx.SpatialInertia(mass, (0.02, 0.01, -0.2), mass * np.diag([0.02, 0.03, 0.01])),
        )
        parent, mass = start + name, 0.4 * mass


def normalized(model: dx.Model, q: np.ndarray) -> np.ndarray:
    q = q.copy()
    for name, joint in zip(model.joint_names, model.joints, strict=True):
        if joint.nq == joint.nv + 1:
            own = q[:, model.q_slice(name)][:, -4:]
            own /= np.linalg.norm(own, axis=1, keepdims=True)
    return q


def measure_model(model: dx.Model, starts: dict[str, str]) -> dict[str, dict[str, float]]:
    """The largest relative error of each quantity of each robot in the model; `starts` are their prefixes."""
    rng = generator(" ".join(starts))
    q, v = random_states(model, rng, STATES)
    state = [x.astype(np.float32) for x in (q, v, *rng.normal(size=(2, STATES, model.nv)))]
    exact = [x.astype(np.float64) for x in state]
    exact[0] = normalized(model, exact[0])
    tips = [tip(model, start) for start in starts.values()]

    def one(model, q, v, a, tau):
        jacobians = [dx.jacobian(model, q, name, frame="world_aligned") for name in tips]
        return {
            "inverse dynamics": dx.inverse_dynamics(model, q, v, a),
            "forward dynamics": dx.forward_dynamics(model, q, v, tau),
            "mass matrix": dx.mass_matrix(model, q),
            "Jacobian": jnp.stack(jacobians),
        }

    batched = jax.vmap(one, in_axes=(None, 0, 0, 0, 0))
    single = jax.tree.map(lambda a: a.astype(jnp.float32), model)
    # Without optimisation, which would take far longer than all the rest.
    compiled = jax.jit(batched, compiler_options={"xla_backend_optimization_level": 0})
    ours, reference = compiled(single, *state), compiled(model, *exact)
    assert all(x.dtype == jnp.float32 for x in ours.values())

    errors = {}
    for k, (name, start) in enumerate(starts.items()):
        bodies = np.array([body.startswith(start) for body in model.body_names])
        own = bodies[model.topology.body_of_velocity]
        block = np.ix_(np.arange(STATES), own, own)
        pick: dict[str, Callable] = {
            "inverse dynamics": lambda x, own=own: x[:, own],
            "forward dynamics": lambda x, own=own: x[:, own],
            "mass matrix": lambda x, block=block: x[block],
            "Jacobian": lambda x, own=own, k=k: x[:, k][..., own],
        }
        errors[name] = {
            key: relative(np.asarray(pick[key](ours[key]), float), np.asarray(pick[key](reference[key])))
            for key in QUANTITIES
        }
    return errors


def tip(model: dx.Model, start: str) -> str:
    """The robot's body with the most joints below it."""
    depths = zip(model.topology.depths, model.body_names, strict=True)
    return max((depth, name) for depth, name in depths if name.startswith(start))[1]


def relative(ours: np.ndarray, reference: np.ndarray) -> float:
    axes = tuple(range(1, reference.ndim))
    return float(np.max(np.max(np.abs(ours - reference), axis=axes) / np.max(np.abs(reference), axis=axes)))


@lru_cache(maxsize=1)
def measure() -> dict[str, dict[str, float]]:
    """Errors of all robots."""
    robots, errors = side_by_side(), {}
    for model in {id(model): model for model, _ in robots.values()}.values():
        errors |= measure_model(model, {name: start for name, (m, start) in robots.items() if m is model})
    return errors


def budget(error: float) -> float:
    """Twice the error, rounded up to one digit."""
    unit = 10.0 ** np.floor(np.log10(2.0 * error))
    return float(f"{np.ceil(2.0 * error / unit) * unit:.0e}")


def budget_file(errors: dict[str, dict[str, float]]) -> str:
    lines = ["# Largest relative error of float32 over 20 random states that test_float32.py lets pass."]
    for name, row in errors.items():
        lines += ["", f'["{name}"]', *(f'"{key}" = {budget(error):.0e}' for key, error in row.items())]
    return "\n".join(lines) + "\n"


@pytest.mark.skipif(not example_robots(), reason="example-robot-data is not installed")
def test_errors_are_within_their_budgets():
    budgets = tomllib.loads(BUDGETS.read_text(encoding="utf-8"))
    errors = measure()
    assert errors.keys() == budgets.keys()
    exceeded = [
        f"{name}: {key} {row[key]:.1e} > {budgets[name][key]:.0e}"
        for name, row in errors.items()
        for key in QUANTITIES
        if not row[key] <= budgets[name][key]
    ]
    assert not exceeded, "; ".join(exceeded)

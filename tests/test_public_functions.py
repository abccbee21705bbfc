"""Every public function that computes: its types under strict promotion, and the same numbers from XLA's optimiser.

The other tests promote as JAX does by itself, and run without the optimiser.
"""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import OPTIMISED
from constraints import mechanisms

import dynax as dx

FRAME = {"frame": "world_aligned"}
TIP = ("arm", "hand")


class Given(NamedTuple):
    """A floating arm at a state, a four-bar at another, and the same four-bar embedded."""

    model: dx.Model
    q: jax.Array
    v: jax.Array
    a: jax.Array
    tau: jax.Array
    external: jax.Array
    bars: dx.Model
    closed: jax.Array
    rate: jax.Array
    embedded: dx.EmbeddedModel
    matrix: jax.Array


@lru_cache
def choice() -> dx.IndependentChoice:
    bars = mechanisms.four_bar()
    return dx.choose_independent(dx.constraint_jacobian(bars.model, bars.q))


@pytest.fixture(scope="module")
def given() -> Given:
    inertia = dx.SpatialInertia(1.2, (0.1, 0.2, -0.1), (0.2, 0.15, 0.1))
    builder = dx.ModelBuilder().body("trunk", joint=dx.Free(), inertia=inertia)
    place = dx.Transform.from_translation((0.2, 0.1, 0.3))
    builder.body("arm", parent="trunk", joint=dx.Revolute((0, 1, 0)), placement=place, inertia=inertia, damping=0.1,
                 friction_loss=0.2, armature=0.1)  # fmt: skip
    builder.body("hand", parent="arm", joint=dx.Prismatic((1, 0, 0)), placement=place, inertia=inertia, stiffness=3.0)
    model = builder.build()
    rng = np.random.default_rng(3)
    q = dx.random_configuration(model, jax.random.key(1))
    v, a, tau = jnp.asarray(rng.normal(size=(3, model.nv)))
    external = jnp.asarray(rng.normal(size=(model.num_bodies, 6)))
    bars = mechanisms.four_bar()
    closed = jnp.asarray(bars.q)
    embedded = dx.embed(bars.model, closed, independent=["crank_joint"])
    rate = dx.admissible_velocity(bars.model, closed, jnp.array([1.0, 0.0, 0.0]), hold=["crank_joint"])
    matrix = dx.mass_matrix(model, q)
    choice()
    return Given(model, q, v, a, tau, external, bars.model, closed, rate, embedded, matrix)


def gamma(model, y):
    """A configuration of the four-bar as a function of its crank: of its crank alone, for what matters here."""
    return jnp.stack([y[0], 0.5 * y[0], jnp.sin(y[0])])


def coupled(g: Given):
    """The hand held by a ball joint at the trunk: the system, none other, the coupling."""
    system = dx.open_system(g.model, g.q, g.v, g.tau, nodes=("trunk", "hand"))
    return system, None, dx.joint_coupling(system, None, ("primary", "trunk"), ("primary", "hand"), dx.Spherical())


# What is asked of each function. Results are any trees of arrays.
CALLS = {
    "actuated_inverse_dynamics": lambda g: dx.actuated_inverse_dynamics(
        g.bars, g.closed, g.rate, 0.0 * g.rate, actuated=["crank_joint"]
    ),
    "admissible_velocity": lambda g: dx.admissible_velocity(g.bars, g.closed, g.rate, hold=["crank_joint"]),
    "assemble": lambda g: dx.assemble(g.bars, g.closed, hold=["crank_joint"]).q,
    "augmented_bodies": lambda g: dx.augmented_bodies(g.bars),
    "bias_force": lambda g: dx.bias_force(g.model, g.q, g.v, g.external),
    "body_accelerations": lambda g: dx.body_accelerations(g.model, g.q, g.v, g.a),
    "body_compliances": lambda g: dx.body_compliances(g.model, g.q),
    "body_velocities": lambda g: dx.body_velocities(g.model, g.q, g.v),
    "center_of_mass": lambda g: dx.center_of_mass(g.model, g.q),
    "centroidal_momentum": lambda g: dx.centroidal_momentum(g.model, g.q, g.v),
    "centroidal_momentum_matrix": lambda g: dx.centroidal_momentum_matrix(g.model, g.q),
    "check_state": lambda g: dx.check_state(g.model, g.q, g.v),
    "classical_acceleration": lambda g: dx.classical_acceleration(*map(dx.Motion.from_array, (g.a[:6], g.v[:6]))),
    "closed_motion": lambda g: dx.closed_motion(g.bars, gamma, g.closed[:1], g.rate[:1]),
    "configuration_rate": lambda g: dx.configuration_rate(g.model, g.q, g.v),
    "constrained_dynamics": lambda g: dx.constrained_dynamics(g.bars, g.closed, g.rate, g.rate).a,
    "constraint_bias": lambda g: dx.constraint_bias(g.bars, g.closed, g.rate),
    "constraint_jacobian": lambda g: dx.constraint_jacobian(g.bars, g.closed),
    "constraint_rate": lambda g: dx.constraint_rate(g.bars, g.closed, g.rate),
    "constraint_residual": lambda g: dx.constraint_residual(g.bars, g.closed),
    "coriolis_matrix": lambda g: dx.coriolis_matrix(g.model, g.q, g.v),
    "coupled_dynamics": lambda g: dx.coupled_dynamics(*coupled(g)).primary,
    "coupled_impulse": lambda g: dx.coupled_impulse(*coupled(g)).primary,
    "coupled_projection": lambda g: dx.coupled_projection(*coupled(g)),
    "diagonal_coriolis": lambda g: dx.diagonal_coriolis(g.model, g.q, g.v),
    "diagonal_force": lambda g: dx.diagonal_force(g.model, g.q, g.tau),
    "diagonal_velocity": lambda g: dx.diagonal_velocity(g.model, g.q, g.v),
    "diagonalized_dynamics": lambda g: dx.diagonalized_dynamics(g.model, g.q, g.v, g.tau, g.external),
    "difference": lambda g: dx.difference(g.model, dx.neutral(g.model), g.q),
    "divide_and_conquer_dynamics": lambda g: dx.divide_and_conquer_dynamics(g.model, g.q, g.v, g.tau, g.external),
    "embedding_matrix": lambda g: dx.embedding_matrix(g.embedded, g.closed),
    "embedding_quality": lambda g: dx.embedding_quality(g.embedded, g.closed),
    "explicit_constraints": lambda g: dx.explicit_constraints(
        dx.constraint_jacobian(g.bars, g.closed), choice=choice()
    ),
    "factor_ltdl": lambda g: jax.tree.leaves(dx.factor_ltdl(g.matrix, range(-1, g.model.nv - 1))),
    "factor_ltl": lambda g: jax.tree.leaves(dx.factor_ltl(g.matrix, range(-1, g.model.nv - 1))),
    "find_equilibrium": lambda g: dx.find_equilibrium(
        g.bars, g.closed, 0.1 * g.closed[:1], actuation=jnp.ones_like(g.closed, shape=(3, 1)), hold=["crank_joint"]
    )[:4],
    "fixman_potential": lambda g: dx.fixman_potential(g.model, g.q, 0.7),
    "fixman_torque": lambda g: dx.fixman_torque(g.model, g.q, 0.7),
    "floating_bias_force": lambda g: dx.floating_bias_force(g.model, g.q, g.v, g.external),
    "floating_equations": lambda g: dx.floating_equations(g.model, g.q, g.v, g.external),
    "floating_inverse_dynamics": lambda g: dx.floating_inverse_dynamics(g.model, g.q, g.v, g.a[6:]),
    "floating_jacobian": lambda g: dx.floating_jacobian(g.model, g.q, "hand", **FRAME),
    "floating_mass_matrix": lambda g: dx.floating_mass_matrix(g.model, g.q),
    "forward_dynamics": lambda g: dx.forward_dynamics(g.model, g.q, g.v, g.tau, g.external),
    "forward_dynamics_by_assembly": lambda g: dx.forward_dynamics_by_assembly(
        g.model, g.q, g.v, g.tau, g.external, variant="inertia"
    ),
    "forward_dynamics_derivatives": lambda g: dx.forward_dynamics_derivatives(g.model, g.q, g.v, g.tau, g.external),
    "forward_kinematics": lambda g: dx.forward_kinematics(g.model, g.q),
    "frame_pose": lambda g: dx.frame_pose(g.model, g.q, "hand"),
    "free_accelerations": lambda g: dx.free_accelerations(g.model, g.q, g.tau, TIP, **FRAME),
    "gravity_force": lambda g: dx.gravity_force(g.model, g.q),
    "hybrid_dynamics": lambda g: dx.hybrid_dynamics(g.model, g.q, g.v, g.tau, g.a, ("arm_joint",), g.external),
    "hybrid_dynamics_by_matrix": lambda g: dx.hybrid_dynamics_by_matrix(
        g.model, g.q, g.v, g.tau, g.a, ("arm_joint",), g.external
    ),
    "inertial_parameters": lambda g: dx.inertial_parameters(g.model),
    "innovations_factor": lambda g: dx.innovations_factor(g.model, g.q).solve(g.tau),
    "integrate": lambda g: dx.integrate(g.model, g.q, g.v),
    "inverse_dynamics": lambda g: dx.inverse_dynamics(g.model, g.q, g.v, g.a, g.external),
    "inverse_dynamics_derivatives": lambda g: dx.inverse_dynamics_derivatives(g.model, g.q, g.v, g.a, g.external),
    "inverse_dynamics_regressor": lambda g: dx.inverse_dynamics_regressor(g.model, g.q, g.v, g.a),
    "inverse_kinematics": lambda g: (
        dx.inverse_kinematics(g.model, dx.optimize.position_target("hand", (0.1, 0.2, 0.9)), g.q).q
    ),
    "inverse_mass_matrix": lambda g: dx.inverse_mass_matrix(g.model, g.q),
    "jacobian": lambda g: dx.jacobian(g.model, g.q, "hand", **FRAME),
    "jacobian_bias": lambda g: dx.jacobian_bias(g.model, g.q, g.v, "hand", **FRAME),
    "join_couplings": lambda g: jax.tree.leaves(dx.join_couplings(coupled(g)[2])),
    "joint_coupling": lambda g: jax.tree.leaves(coupled(g)[2]),
    "joint_forces": lambda g: dx.joint_forces(g.model, g.q, g.v, g.a, g.external),
    "kinetic_energy": lambda g: dx.kinetic_energy(g.model, g.q, g.v),
    "linearize": lambda g: dx.linearize(g.model, g.q, g.v, g.tau),
    "log_determinant": lambda g: dx.log_determinant(g.model, g.q),
    "loop_closure_dynamics": lambda g: dx.loop_closure_dynamics(g.bars, gamma, g.closed[:1], g.rate[:1], g.rate),
    "loop_jacobians": lambda g: dx.loop_jacobians(g.bars, g.closed),
    "loop_poses": lambda g: dx.loop_poses(g.bars, g.closed),
    "loop_wrenches": lambda g: dx.loop_wrenches(g.bars, g.closed, jnp.ones_like(g.closed, shape=(1, 6))),
    "mass_matrix": lambda g: dx.mass_matrix(g.model, g.q),
    "minimal_inertial_parameters": lambda g: dx.minimal_inertial_parameters(g.model, frame="body"),
    "mobility": lambda g: dx.mobility(g.bars, g.closed).rank,
    "momentum": lambda g: dx.momentum(g.model, g.q, g.v),
    "neutral": lambda g: dx.neutral(g.model),
    "normalize": lambda g: dx.normalize(g.model, 1.1 * g.q),
    "open_system": lambda g: coupled(g)[0].free,  # the model itself has limits that are infinite
    "operational_compliance": lambda g: dx.operational_compliance(g.model, g.q, TIP, **FRAME),
    "operational_space": lambda g: dx.operational_space(g.model, g.q, "hand", **FRAME, v=g.v),
    "parameters": lambda g: dx.parameters(g.model),
    "potential_energy": lambda g: dx.potential_energy(g.model, g.q),
    "random_configuration": lambda g: dx.random_configuration(g.model, jax.random.key(0)),
    "rollout": lambda g: dx.rollout(g.model, g.q, g.v, jnp.stack([g.tau] * 3), 0.01),
    "sensitivities": lambda g: dx.sensitivities(g.model, g.q, g.v).inverse_mass_matrix.dense(),
    "sparse_constrained_dynamics": lambda g: dx.sparse_constrained_dynamics(g.bars, g.closed, g.rate, g.rate).a,
    "sparse_product": lambda g: dx.sparse_product(g.matrix, g.v, range(-1, g.model.nv - 1)),
    "spatial_acceleration": lambda g: dx.spatial_acceleration(*map(dx.Motion.from_array, (g.a[:6], g.v[:6]))),
    "spatial_operators": lambda g: dx.spatial_operators(g.model, g.q).mass_matrix.dense(),
    "step": lambda g: dx.step(g.model, g.q, g.v, g.tau, 0.01),
    "velocity_from_diagonal": lambda g: dx.velocity_from_diagonal(g.model, g.q, g.v),
    "with_inertial_parameters": lambda g: dx.with_inertial_parameters(g.model, dx.inertial_parameters(g.model)).inertia,
    "with_parameters": lambda g: dx.with_parameters(g.model, {"inertias": 0.1 * jnp.ones_like(g.q, shape=(3, 10))}).com,
}
# Those that make, change or describe models and programs, in NumPy or not at all; and Diffrax, which promotes.
OTHERS = {
    "attach", "batch", "beam_elements", "change_root", "check_elements", "choose_independent", "compile_report",
    "constraint_names", "constraint_pattern", "diffrax_term", "eigenmodes", "embed", "fix_joints", "flexible_beam",
    "flexible_body_from_nodes", "flexible_panel", "inconsistent_bodies", "installed_robots", "keyframes", "load",
    "load_actuators", "load_finite_elements", "load_flexible_body", "load_scene", "load_sensors", "orthonormal_modes",
    "panel_elements", "read_matrix_market", "remove_subtree", "render", "rewrite", "save", "save_finite_elements",
    "save_flexible_body", "simplify_inertias", "solve", "to_builder", "transferable_inertias", "vanishing_parameters",
    "view", "write_matrix_market", "write_mjcf", "write_sdf", "write_urdf",
}  # fmt: skip


def test_every_public_function_is_here():
    names = {name: getattr(dx, name) for name in dir(dx) if not name.startswith("_")}
    functions = {name for name, what in names.items() if callable(what) and not inspect.isclass(what)}
    assert functions == CALLS.keys() | OTHERS


@pytest.mark.parametrize("dtype", [jnp.float32, pytest.param(jnp.float64, marks=pytest.mark.slow)])
def test_types_are_kept_without_promotion(given, dtype):
    """In the other precision nothing is mixed, and no result has another type than what was given."""
    given = jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.inexact) else x, given)
    wrong = []
    for name, call in CALLS.items():
        with jax.numpy_dtype_promotion("strict"):
            try:
                found = jax.eval_shape(call, given)
            except Exception as error:
                wrong.append(f"{name}: {str(error).splitlines()[0]}")
                continue
        types = {x.dtype.name for x in jax.tree.leaves(found) if jnp.issubdtype(x.dtype, jnp.inexact)}
        if types - {jnp.dtype(dtype).name}:
            wrong.append(f"{name} returns {types}")
    assert not wrong, "\n".join(wrong)


CORE = ("forward_dynamics", "forward_kinematics", "integrate", "inverse_dynamics", "jacobian", "mass_matrix", "step")
"""Those of every run; the others take minutes together."""


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize(
    "name", [name if name in CORE else pytest.param(name, marks=pytest.mark.slow) for name in CALLS]
)
def test_the_optimiser_changes_nothing(given, name):
    plain = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
    expected, found = (jax.jit(CALLS[name], compiler_options=options)(given) for options in (plain, OPTIMISED))
    assert jax.tree.leaves(found)
    for x, y in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        assert np.all(np.isfinite(x))
        np.testing.assert_allclose(y, x, rtol=1e-9, atol=1e-10 * (1.0 + np.max(np.abs(x), initial=0.0)))

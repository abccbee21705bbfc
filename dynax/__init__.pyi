# The public names, grouped by what they are about, the core first. `__init__.py` reads where they come from here.

# Models
from dynax.errors import ModelError as ModelError
from dynax.model import (
    Model as Model,
    ModelBuilder as ModelBuilder,
)
from dynax.model.flexible import FlexibleModel as FlexibleModel
from dynax.model.edit import (
    attach as attach,
    change_root as change_root,
    fix_joints as fix_joints,
    remove_subtree as remove_subtree,
    to_builder as to_builder,
)
from dynax.model.equivalence import (
    augmented_bodies as augmented_bodies,
    minimal_inertial_parameters as minimal_inertial_parameters,
    simplify_inertias as simplify_inertias,
    transferable_inertias as transferable_inertias,
    vanishing_parameters as vanishing_parameters,
)
from dynax.model.inertias import (
    inertial_parameters as inertial_parameters,
    with_inertial_parameters as with_inertial_parameters,
)
from dynax.model.parameters import (
    inconsistent_bodies as inconsistent_bodies,
    parameters as parameters,
    with_parameters as with_parameters,
)
from dynax.model.validity import check_state as check_state
from dynax.io import (
    DrakeConverter as DrakeConverter,
    JaxsimConverter as JaxsimConverter,
    JointState as JointState,
    MujocoConverter as MujocoConverter,
    PinocchioConverter as PinocchioConverter,
    installed_robots as installed_robots,
    keyframes as keyframes,
    load as load,
    load_actuators as load_actuators,
    load_scene as load_scene,
    load_sensors as load_sensors,
    rewrite as rewrite,
    save as save,
    write_mjcf as write_mjcf,
    write_sdf as write_sdf,
    write_urdf as write_urdf,
)

# Joints, and what closes loops
from dynax.joints import (
    AbstractClosure as AbstractClosure,
    AbstractJoint as AbstractJoint,
    Cylindrical as Cylindrical,
    Distance as Distance,
    Driven as Driven,
    Free as Free,
    Gimbal as Gimbal,
    Helical as Helical,
    Planar as Planar,
    Prismatic as Prismatic,
    RackAndPinion as RackAndPinion,
    Reversed as Reversed,
    Revolute as Revolute,
    Rolling as Rolling,
    RollingBall as RollingBall,
    SphereInCylinder as SphereInCylinder,
    Spherical as Spherical,
    Translation as Translation,
    Universal as Universal,
    UserJoint as UserJoint,
    Weld as Weld,
)

# Space
from dynax.spatial import (
    ArticulatedInertia as ArticulatedInertia,
    Force as Force,
    Motion as Motion,
    RigidInertia as RigidInertia,
    Rotation as Rotation,
    SpatialInertia as SpatialInertia,
    Transform as Transform,
    classical_acceleration as classical_acceleration,
    spatial_acceleration as spatial_acceleration,
)

# Bodies that bend
from dynax.flexible import (
    BeamSection as BeamSection,
    ElementReport as ElementReport,
    FiniteElements as FiniteElements,
    FlexibleBody as FlexibleBody,
    Modes as Modes,
    PanelSection as PanelSection,
    beam_elements as beam_elements,
    check_elements as check_elements,
    flexible_beam as flexible_beam,
    flexible_body_from_nodes as flexible_body_from_nodes,
    flexible_panel as flexible_panel,
    orthonormal_modes as orthonormal_modes,
    panel_elements as panel_elements,
)
from dynax.io import (
    load_finite_elements as load_finite_elements,
    load_flexible_body as load_flexible_body,
    read_matrix_market as read_matrix_market,
    save_finite_elements as save_finite_elements,
    save_flexible_body as save_flexible_body,
    write_matrix_market as write_matrix_market,
)

# Configurations
from dynax.model.configuration import (
    configuration_rate as configuration_rate,
    difference as difference,
    integrate as integrate,
    neutral as neutral,
    normalize as normalize,
    random_configuration as random_configuration,
)

# Kinematics
from dynax.algorithms.center_of_mass import center_of_mass as center_of_mass
from dynax.algorithms.frame_pose import frame_pose as frame_pose
from dynax.algorithms.frames import (
    body_accelerations as body_accelerations,
    body_velocities as body_velocities,
    forward_kinematics as forward_kinematics,
    jacobian as jacobian,
    jacobian_bias as jacobian_bias,
)

# Dynamics of trees
from dynax.algorithms.rnea import gravity_force as gravity_force, joint_forces as joint_forces
from dynax.routes.inverse_dynamics import bias_force as bias_force, inverse_dynamics as inverse_dynamics
from dynax.routes.forward_dynamics import forward_dynamics as forward_dynamics
from dynax.algorithms.crba import mass_matrix as mass_matrix
from dynax.algorithms.factor import inverse_mass_matrix as inverse_mass_matrix
from dynax.algorithms.coriolis import coriolis_matrix as coriolis_matrix
from dynax.algorithms.hybrid import (
    hybrid_dynamics as hybrid_dynamics,
    hybrid_dynamics_by_matrix as hybrid_dynamics_by_matrix,
)
from dynax.algorithms.momentum import (
    centroidal_momentum as centroidal_momentum,
    centroidal_momentum_matrix as centroidal_momentum_matrix,
    kinetic_energy as kinetic_energy,
    momentum as momentum,
    potential_energy as potential_energy,
)
from dynax.algorithms.regressor import inverse_dynamics_regressor as inverse_dynamics_regressor
from dynax.routes.floating import (
    FloatingEquations as FloatingEquations,
    floating_bias_force as floating_bias_force,
    floating_equations as floating_equations,
    floating_inverse_dynamics as floating_inverse_dynamics,
    floating_jacobian as floating_jacobian,
    floating_mass_matrix as floating_mass_matrix,
)

# Derivatives in closed form
from dynax.derivatives.inverse_dynamics import (
    InverseDynamicsDerivatives as InverseDynamicsDerivatives,
    inverse_dynamics_derivatives as inverse_dynamics_derivatives,
)
from dynax.derivatives.forward_dynamics import (
    ForwardDynamicsDerivatives as ForwardDynamicsDerivatives,
    forward_dynamics_derivatives as forward_dynamics_derivatives,
)

# Motion in time, batches
from dynax import simulate as simulate
from dynax.simulate import (
    AbstractStepper as AbstractStepper,
    Eigenmodes as Eigenmodes,
    ExplicitEuler as ExplicitEuler,
    Heun as Heun,
    ImplicitMidpoint as ImplicitMidpoint,
    Linearization as Linearization,
    RolloutStatus as RolloutStatus,
    RungeKutta4 as RungeKutta4,
    SemiImplicitEuler as SemiImplicitEuler,
    Trajectory as Trajectory,
    Variational as Variational,
    batch as batch,
    diffrax_term as diffrax_term,
    eigenmodes as eigenmodes,
    linearize as linearize,
    rollout as rollout,
    solve as solve,
    step as step,
)

# Actuators and sensors
from dynax import actuate as actuate

# What touches
from dynax import contact as contact

# Trajectories, controllers and designs by gradient
from dynax import optimize as optimize
from dynax.optimize.equilibrium import (
    Equilibrium as Equilibrium,
    find_equilibrium as find_equilibrium,
)
from dynax.optimize.inverse_kinematics import (
    InverseKinematics as InverseKinematics,
    inverse_kinematics as inverse_kinematics,
)

# To see it
from dynax import viz as viz
from dynax.viz import render as render, view as view

# Models from data
from dynax import identify as identify

# How it is compiled
from dynax.compile.report import (
    CompileReport as CompileReport,
    compile_report as compile_report,
)

# Closed loops and gears
from dynax.constraints.actuation import (
    ActuatedForces as ActuatedForces,
    actuated_inverse_dynamics as actuated_inverse_dynamics,
)
from dynax.constraints.assembly import (
    Assembly as Assembly,
    assemble as assemble,
)
from dynax.constraints.augmented import (
    CoupledMotion as CoupledMotion,
    coupled_dynamics as coupled_dynamics,
    coupled_impulse as coupled_impulse,
    coupled_projection as coupled_projection,
)
from dynax.constraints.closure_function import (
    ClosedMotion as ClosedMotion,
    closed_motion as closed_motion,
    loop_closure_dynamics as loop_closure_dynamics,
)
from dynax.constraints.couplings import (
    Coupling as Coupling,
    join_couplings as join_couplings,
    joint_coupling as joint_coupling,
)
from dynax.constraints.dynamics import (
    ConstrainedDynamics as ConstrainedDynamics,
    admissible_velocity as admissible_velocity,
    constrained_dynamics as constrained_dynamics,
)
from dynax.constraints.explicit import (
    ExplicitConstraints as ExplicitConstraints,
    IndependentChoice as IndependentChoice,
    choose_independent as choose_independent,
    constraint_pattern as constraint_pattern,
    explicit_constraints as explicit_constraints,
)
from dynax.constraints.loop_joints import (
    loop_jacobians as loop_jacobians,
    loop_poses as loop_poses,
    loop_wrenches as loop_wrenches,
)
from dynax.constraints.mobility import (
    Mobility as Mobility,
    mobility as mobility,
)
from dynax.constraints.open_system import (
    OpenSystem as OpenSystem,
    open_system as open_system,
)
from dynax.constraints.residual import (
    constraint_bias as constraint_bias,
    constraint_jacobian as constraint_jacobian,
    constraint_names as constraint_names,
    constraint_rate as constraint_rate,
    constraint_residual as constraint_residual,
)
from dynax.constraints.sparse_system import sparse_constrained_dynamics as sparse_constrained_dynamics

# Loops embedded in the tree
from dynax.embedding.model import (
    EmbeddedModel as EmbeddedModel,
    EmbeddingQuality as EmbeddingQuality,
    embed as embed,
    embedding_matrix as embedding_matrix,
    embedding_quality as embedding_quality,
)

# Spatial operators
from dynax import operators as operators
from dynax.operators.compliance import (
    body_compliances as body_compliances,
    operational_compliance as operational_compliance,
)
from dynax.operators.determinant import (
    fixman_potential as fixman_potential,
    fixman_torque as fixman_torque,
    log_determinant as log_determinant,
)
from dynax.operators.diagonalized import (
    diagonal_coriolis as diagonal_coriolis,
    diagonal_force as diagonal_force,
    diagonal_velocity as diagonal_velocity,
    diagonalized_dynamics as diagonalized_dynamics,
    velocity_from_diagonal as velocity_from_diagonal,
)
from dynax.operators.factor import (
    InnovationsFactor as InnovationsFactor,
    innovations_factor as innovations_factor,
)
from dynax.operators.operational import (
    OperationalSpace as OperationalSpace,
    free_accelerations as free_accelerations,
    operational_space as operational_space,
)
from dynax.operators.sensitivity import (
    Sensitivities as Sensitivities,
    sensitivities as sensitivities,
)
from dynax.operators.spatial import (
    SpatialOperators as SpatialOperators,
    spatial_operators as spatial_operators,
)

# Other routes to the same acceleration, sparse factors
from dynax.routes.assembly import forward_dynamics_by_assembly as forward_dynamics_by_assembly
from dynax.routes.divide_and_conquer import divide_and_conquer_dynamics as divide_and_conquer_dynamics
from dynax.linear.ltl import (
    SparseFactor as SparseFactor,
    factor_ltdl as factor_ltdl,
    factor_ltl as factor_ltl,
    sparse_product as sparse_product,
)

__version__: str

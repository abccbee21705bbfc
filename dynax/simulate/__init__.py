"""Simulation: steppers on the configuration manifold, rollouts, adaptive solves."""

from dynax.simulate.batch import batch as batch
from dynax.simulate.compliant import Compliant as Compliant
from dynax.simulate.diffrax import diffrax_term as diffrax_term
from dynax.simulate.diffrax import solve as solve
from dynax.simulate.euler import ExplicitEuler as ExplicitEuler
from dynax.simulate.euler import SemiImplicitEuler as SemiImplicitEuler
from dynax.simulate.events import EventRun as EventRun
from dynax.simulate.events import EventStatus as EventStatus
from dynax.simulate.events import run_events as run_events
from dynax.simulate.linearize import Eigenmodes as Eigenmodes
from dynax.simulate.linearize import Linearization as Linearization
from dynax.simulate.linearize import eigenmodes as eigenmodes
from dynax.simulate.linearize import linearize as linearize
from dynax.simulate.midpoint import ImplicitMidpoint as ImplicitMidpoint
from dynax.simulate.rollout import rollout as rollout
from dynax.simulate.rollout import step as step
from dynax.simulate.runge_kutta import Heun as Heun
from dynax.simulate.runge_kutta import RungeKutta4 as RungeKutta4
from dynax.simulate.stepper import AbstractStepper as AbstractStepper
from dynax.simulate.touching import Touching as Touching
from dynax.simulate.trajectory import RolloutStatus as RolloutStatus
from dynax.simulate.trajectory import TouchReport as TouchReport
from dynax.simulate.trajectory import TouchStatus as TouchStatus
from dynax.simulate.trajectory import Trajectory as Trajectory
from dynax.simulate.variational import Variational as Variational

"""What the documentation shows, for pyright to read: nothing here runs. An embedded model stands where a model does."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

import dynax as dx


def motion(model: dx.Model, q: jax.Array) -> tuple[dx.Trajectory, jax.Array]:
    closed = dx.embed(model, q, independent=["crank_joint"])
    v = jnp.zeros(closed.nv)
    a: jax.Array = dx.forward_dynamics(closed, q, v, v, execution="levels")
    tau: jax.Array = dx.inverse_dynamics(closed, q, v, a)
    energy: jax.Array = dx.kinetic_energy(closed, q, v) + dx.potential_energy(closed, q)
    q, v = dx.step(closed.replace(mass=2.0 * closed.mass), q, v, tau, 1e-3, stepper=dx.RungeKutta4())
    run = dx.rollout(closed, q, v, jnp.zeros((10, closed.nv)), 1e-3)
    time, q, v = dx.rollout(closed.at_time(run.time[-1]), q, v, lambda t, q, v: -v, 1e-3, steps=10)
    if run.status is not None and run.stopped.any():
        print(dx.RolloutStatus(int(run.status[-1])).name, time)
    return run, energy


def remembered(closed: dx.EmbeddedModel, q: jax.Array, v: jax.Array) -> jax.Array:
    def policy(t: jax.Array, q: jax.Array, v: jax.Array, memory: jax.Array) -> tuple[jax.Array, jax.Array]:
        return -v, memory + t

    run, memory = dx.rollout(closed, q, v, policy, 1e-3, steps=10, memory=jnp.zeros(()))
    return run.q[-1] + memory


def of_a_tree(arm: dx.Model, q: jax.Array, v: jax.Array, tau: jax.Array) -> jax.Array:
    run = dx.rollout(arm, q, v, tau[None], 1e-3)
    a: jax.Array = dx.forward_dynamics(arm, run.q[-1], run.v[-1], tau)
    return dx.mass_matrix(arm, q) @ a


def of_bodies_that_bend(builder: dx.ModelBuilder, panel: dx.FlexibleBody) -> jax.Array:
    builder.body("panel", joint=dx.Revolute((0, 0, 1)), inertia=panel)
    model = builder.build()
    q, v = dx.check_state(model, dx.neutral(model), jnp.zeros(model.nv))
    assert v is not None
    run = dx.rollout(model, q, v, jnp.zeros((10, model.nv)), 1e-3, stepper="rk4")
    q, v = dx.step(model, run.q[-1], run.v[-1], v, 1e-3)
    energy: jax.Array = dx.kinetic_energy(model, q, v) + dx.potential_energy(model, q)
    assert isinstance(model, dx.FlexibleModel)
    (body,) = model.bodies
    stiffer = model.replace(bodies=(dataclasses.replace(body, stiffness=2.0 * body.stiffness),))
    a: jax.Array = dx.batch(lambda m, q, v: dx.forward_dynamics(m, q, v, v))(stiffer, q[None], v[None])
    tip: dx.Transform = dx.frame_pose(stiffer, q, "panel/tip")
    return energy + a[0, model.v_slice("panel/modes")].sum() + tip.translation[2]


def saved(model: dx.FlexibleModel) -> dx.Model:
    dx.save(model, "spacecraft.json")
    return dx.load("spacecraft.json")

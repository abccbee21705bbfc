"""Bodies that bend in daily use: files, batches of models, drawings, and float32."""

from __future__ import annotations

import dataclasses
import json
from functools import lru_cache, partial
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from flexible.systems import TUBE, arm, bus_with_panels, chain, nodal_data, random_state

import dynax as dx


def same(one, other) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def varied(model: dx.FlexibleModel, scale) -> dx.FlexibleModel:
    """Models that differ in the stiffness and the mass of the first body, and in the mass of a rigid one."""
    first, *others = model.bodies
    first = dataclasses.replace(first, stiffness=scale[:, None, None] * first.stiffness, mass=scale * first.mass)
    return model.replace(bodies=(first, *others), mass=scale[:, None] * model.mass)


def test_files_give_back_every_bit(tmp_path, rng):
    """A welded body that bends, one on a joint, a rigid one between; both precisions, and leaves of a batch."""
    model = arm(nodal_data(rng, 3), nodal_data(rng, 2))
    single = jax.tree.map(lambda a: a.astype(jnp.float32), model)
    for k, own in enumerate((model, single, varied(model, np.array([1.0, 1.5])))):
        dx.save(own, tmp_path / f"{k}.json")
        same(own, dx.load(tmp_path / f"{k}.json"))
    assert dx.load(tmp_path / "0.json").report == ()


def test_a_file_of_version_4_is_still_read(tmp_path, rng):
    """It held frames by the reverse of a free joint."""
    model = arm(nodal_data(rng, 3), nodal_data(rng, 2))
    dx.save(model, tmp_path / "new.json")
    document = json.loads((tmp_path / "new.json").read_text())
    document["version"] = 4
    for body in document["bodies"]:
        if body["name"] in ("panel", "boom"):
            body["joint"] = {"type": "Reversed", "joint": body["joint"]}
    same(model, dx.load(json.dumps(document)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d["integrals"]["panel.stiffness"]["values"].__setitem__(1, 9.0), "'panel'.*not symmetric"),
        (lambda d: d["integrals"]["panel.mass"]["values"].__setitem__(0, "nan"), "'panel': `mass` is not finite"),
        (lambda d: d["integrals"]["boom.inertia"].update(shape=[9]), r"has shape \(9,\), expected \(3, 3\)"),
        (lambda d: d["integrals"].pop("boom.damping"), "'boom.damping' is missing"),
        (lambda d: d["integrals"].update({"boom.glue": 3}), "'boom.glue': is unknown"),
        (lambda d: d["flexible"][0].update(level="soft"), "'panel': has the level 'soft'"),
        (lambda d: d["flexible"][0].update(nodes=["root", "tip", "side"]), "'panel': its places"),
        (lambda d: d["flexible"][1].update(name="hub"), "'hub.* is missing"),
    ],
)
def test_files_that_hold_no_such_body(change, words, tmp_path, rng):
    dx.save(arm(nodal_data(rng, 3), nodal_data(rng, 2)), tmp_path / "arm.json")
    document = json.loads((tmp_path / "arm.json").read_text())
    change(document)
    with pytest.raises(dx.ModelError, match=words):
        dx.load(json.dumps(document))


def test_batches_of_models(rng):
    """As an argument of `dx.batch`, as one that a rigid model is: leaves with a batch axis vary, others are shared."""
    model = arm(nodal_data(rng, 3), nodal_data(rng, 2))
    q, v, tau, _ = random_state(model, rng)
    scale = np.linspace(0.5, 2.0, 3)
    found = jax.jit(dx.batch(lambda m, v: dx.forward_dynamics(m, q, v, tau), tile=2))(
        varied(model, scale), jnp.stack([v, 2 * v, 3 * v])
    )
    one = jax.jit(dx.forward_dynamics)
    for k in range(3):
        own = jax.tree.map(lambda a, b, k=k: a[k] if a.ndim > b.ndim else a, varied(model, scale), model)
        np.testing.assert_allclose(found[k], one(own, q, (k + 1.0) * v, tau), rtol=1e-11, atol=1e-11)


def test_what_is_said_of_a_model(rng):
    model = arm(nodal_data(rng, 3), nodal_data(rng, 2))
    drawn = str(model)
    assert "FlexibleModel 'model': 9 bodies and nodes, 2 that bend, nq=9, nv=9" in drawn
    assert "panel (panel/modes: 3 modes, full, " in drawn
    assert "panel/tip (node)" in drawn
    assert "camera (camera_joint: Prismatic, 1.3 kg)" in drawn
    # Of masses that are set, those of rigid bodies: what bodies that bend weigh is theirs.
    frames, heavier = [m.frame for m in model.members], model.replace(mass=2.0 * model.mass)
    rigid = np.delete(np.arange(model.num_bodies), frames)
    np.testing.assert_array_equal(heavier.mass[np.array(frames)], model.mass[np.array(frames)])
    np.testing.assert_array_equal(heavier.mass[rigid], 2.0 * model.mass[rigid])
    q, v, *_ = random_state(model, rng)
    with pytest.raises(AttributeError, match="for trees of rigid bodies"):
        dx.inertial_parameters(model)
    with pytest.raises(TypeError, match=r"coriolis_matrix takes a Model, not FlexibleModel: 'model'"):
        dx.coriolis_matrix(model, q, v)


SAMPLES = 1000


@lru_cache(maxsize=1)
def booms() -> dx.FlexibleModel:
    """One that floats, and one on a hinge at its tip."""
    boom = dx.flexible_beam(TUBE, 4.0, modes=2, held={"base": "123456"})
    builder = dx.ModelBuilder(gravity=(0, 0, 0))
    builder.body("first", joint=dx.Free(), inertia=boom)
    builder.body("second", parent="first/tip", joint=dx.Revolute((0, 0, 1)), inertia=boom)
    return cast(dx.FlexibleModel, builder.build())


MASSES = {
    "mass": 0, "first_moment": 0, "inertia": 0, "translation_coupling": 1, "rotation_coupling": 1,
    "rotation_coupling_rate": 2, "inertia_first": 1, "inertia_second": 2, "foreshortening": 2,
    "foreshortening_moment": 2, "modal_mass": 2,
}  # fmt: skip
SHAPES = {"node_translation": 1, "node_rotation": 1, "node_foreshortening": 2, "stiffness": 2, "damping": 2}
"""What scales with the density, what else with the shapes of modes, and with which power of these."""


def sampled(scale) -> dx.FlexibleModel:
    """Models whose first body has modes of another size, is heavier, and neither stiffer nor damped."""
    model = booms()
    first, second = model.bodies

    def scaled(name: str, power: int) -> jax.Array:
        factor = scale ** (power + (name in MASSES)) * (name != "damping")
        leaf = getattr(first, name)
        return factor.reshape(-1, *(1,) * leaf.ndim) * leaf

    leaves = {name: scaled(name, power) for name, power in (MASSES | SHAPES).items()}
    leaves["stiffness"] /= scale[:, None, None]
    return model.replace(bodies=(dataclasses.replace(first, **leaves), second))


def sample(models: dx.FlexibleModel, k: int) -> dx.FlexibleModel:
    leaves, structure = jax.tree.flatten(models)  # of traced numbers a model knows less than of these
    own = zip(leaves, jax.tree.leaves(booms()), strict=True)
    return structure.unflatten(a[k] if a.ndim > b.ndim else a for a, b in own)


STEP = 1e-4


@jax.jit
def paths(models, q, v, tau):
    """Two steps of a thousand models, one of each."""
    axes = jax.tree.map(lambda a, b: 0 if a.ndim > b.ndim else None, models, booms())
    both = jax.vmap(
        lambda m, q, v: dx.rollout(m, q, v, jnp.stack([tau, tau]), STEP, stepper="explicit"), in_axes=(axes, 0, 0)
    )
    return both(models, q, v)


def test_bodies_that_are_bent_too_far_are_named():
    """The one whose tip stands off by three tenths of its length, not the other; and a rollout says that it has none,
    though what closes a base that floats would give numbers.

    A ninth of that is within the range.
    """
    model = booms()
    deflection = np.abs(np.asarray(model.bodies[0].node_translation[1])).max()
    straight, still = dx.neutral(model), jnp.zeros(model.nv)
    bent = {
        name: straight.at[model.q_slice(f"{name}/modes")].set(0.3 * 4.0 / deflection) for name in ("first", "second")
    }
    near = 8.0 / 9.0 * straight + bent["second"] / 9.0

    dx.check_state(model, near, still)
    for name, q in bent.items():
        with pytest.raises(ValueError, match=f"body '{name}' is bent too far"):
            dx.check_state(model, q, still)
    with pytest.raises(ValueError, match="'second/modes' is not finite"):
        dx.check_state(model, near.at[model.q_slice("second/modes")].set(np.nan), still)
    q = jnp.stack([near, *bent.values(), *[near] * (SAMPLES - 3)])
    path = paths(sampled(np.ones(SAMPLES)), q, jnp.tile(still, (SAMPLES, 1)), still)
    status = dx.RolloutStatus
    gone = [status.GOOD] + [status.NOT_FINITE] * 2
    np.testing.assert_array_equal(path.status[:4], [[status.GOOD] * 3, gone, gone, [status.GOOD] * 3])
    assert not path.stopped[3:].any()


def test_a_thousand_samples_move_as_each_alone(rng):
    """Of stiffness, masses and modes: forces of each one's motion are those given, and what floats keeps its momentum
    and, but for what the hinge and the modes are given, its energy."""
    model, scale = booms(), np.linspace(0.5, 1.5, SAMPLES)
    models, tiny = sampled(scale), np.where(np.isin(np.arange(model.nv), [6, 7, 9, 10]), 0.01, 1.0)
    q = dx.integrate(model, dx.neutral(model), jnp.asarray(tiny * rng.normal(size=model.nv)))
    v, tau = jnp.asarray(tiny * rng.normal(size=model.nv)), np.append(np.zeros(6), rng.normal(size=model.nv - 6))
    path = paths(models, jnp.tile(q, (SAMPLES, 1)), jnp.tile(v, (SAMPLES, 1)), jnp.asarray(tau))
    a = (path.v[:, 1] - v) / STEP
    assert np.all(np.ptp(a, axis=0) > 1e-2 * np.abs(a).min(axis=0))

    @jax.jit
    def kept(model, q, v):
        return dx.momentum(model, q, v), dx.kinetic_energy(model, q, v) + dx.potential_energy(model, q)

    h = 1e-5
    for k in (0, 371, SAMPLES - 1):
        own = sample(models, k)
        np.testing.assert_allclose(dx.inverse_dynamics(own, q, v, a[k]), tau, atol=1e-7 * np.abs(a[k]).max())
        ends = [kept(own, dx.integrate(model, q, s * v + 0.5 * s * s * a[k]), v + s * a[k]) for s in (-h, h)]
        force, power = ((there - here) / (2.0 * h) for here, there in zip(*ends, strict=True))
        momentum, energy = ends[0]
        np.testing.assert_allclose(force, 0.0, atol=1e-6 * np.abs(momentum).max())
        np.testing.assert_allclose(power, tau @ v, atol=1e-6 * energy)


@pytest.mark.slow
def test_slopes_of_a_thousand_samples(rng):
    """By the scale of stiffness, masses and modes: those of each alone, and of the values beside one another."""
    model, scale = booms(), np.linspace(0.5, 1.5, SAMPLES)
    tiny = np.where(np.isin(np.arange(model.nv), [6, 7, 9, 10]), 0.01, 1.0)
    q = dx.integrate(model, dx.neutral(model), jnp.asarray(tiny * rng.normal(size=model.nv)))
    v, tau, along = rng.normal(size=(3, model.nv)) * np.stack([tiny, np.ones_like(tiny), 1.0 / tiny])

    @jax.value_and_grad
    def seen(scale):
        return dx.forward_dynamics(sample(sampled(scale[None]), 0), q, v, tau) @ along

    values, slopes = jax.jit(jax.vmap(seen))(scale)
    alone = jax.jit(seen)
    for k in (0, 371, SAMPLES - 1):
        np.testing.assert_allclose((values[k], slopes[k]), alone(scale[k]), rtol=1e-9)
    np.testing.assert_allclose(slopes, np.gradient(values, scale, edge_order=2), rtol=1e-4, atol=1e-4 * np.ptp(values))


# About twice what was measured over 20 states: the largest error over the largest entry.
BUDGETS = {"inverse dynamics": 1e-6, "forward dynamics": 1e-4, "mass matrix": 6e-7, "rollout": 2e-4}


def test_float32_is_within_its_budgets(rng):
    """A bus with two panels, near its neutral configuration: modes of some millimetres."""
    model = bus_with_panels()
    spread = np.where(np.arange(model.nv) < 6, 1.0, 0.05)
    dv, v, a, tau = (spread * rng.normal(size=(4, 20, model.nv))).astype(np.float32)
    start = np.asarray(jax.vmap(partial(dx.integrate, model, dx.neutral(model)))(dv), np.float32)

    @partial(jax.vmap, in_axes=(None, 0, 0, 0, 0))
    def found(model, q, v, a, tau):
        return {
            "inverse dynamics": dx.inverse_dynamics(model, q, v, a),
            "forward dynamics": dx.forward_dynamics(model, q, v, tau),
            "mass matrix": dx.mass_matrix(model, q),
            "rollout": dx.rollout(model, q, v, jnp.tile(tau, (50, 1)), 1e-3).v[-1],
        }

    single = jax.tree.map(lambda x: x.astype(jnp.float32), model)
    ours = jax.jit(found)(single, start, v, a, tau)
    exact = [x.astype(np.float64) for x in (start, v, a, tau)]
    exact[0] = np.asarray(jax.vmap(partial(dx.normalize, model))(exact[0]))
    reference = jax.jit(found)(model, *exact)
    errors = {}
    for name in BUDGETS:
        assert ours[name].dtype == jnp.float32
        axes = tuple(range(1, reference[name].ndim))
        worst = np.abs(ours[name] - reference[name]).max(axes) / np.abs(reference[name]).max(axes)
        errors[name] = float(worst.max())
    assert all(errors[name] <= BUDGETS[name] for name in BUDGETS), errors


def test_float32_frequencies_of_a_chain():
    """From the inverse of the mass matrix by the recursion, which never forms what it inverts: of ten beams the matrix
    itself has a condition of 1e8, and rounded to float32, however exact it was, gives some half a percent off.
    """
    model = chain(10, 3)
    modes = np.sort(model.places.modes_v[model.places.modes_v >= 0])
    stiffness = np.asarray(scipy.linalg.block_diag(*(body.stiffness for body in model.bodies)))

    def frequencies(inverse):
        root = np.linalg.cholesky(stiffness)
        return np.sqrt(np.linalg.eigvalsh(root.T @ np.asarray(inverse, float)[np.ix_(modes, modes)] @ root))

    single = jax.tree.map(lambda x: x.astype(jnp.float32), model)
    ours, exact = (jax.jit(dx.inverse_mass_matrix)(m, dx.neutral(m)) for m in (single, model))
    assert ours.dtype == jnp.float32
    right = frequencies(exact)
    errors = np.abs(frequencies(ours) / right - 1.0)
    assert np.median(errors) < 5e-6
    assert errors.max() < 1e-4
    rounded = np.linalg.inv(np.asarray(exact)).astype(np.float32).astype(float)
    assert np.abs(frequencies(np.linalg.inv(rounded)) / right - 1.0).max() > 1e-3

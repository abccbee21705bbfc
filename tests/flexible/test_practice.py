"""Bodies that bend in daily use: files, batches of models, drawings, and float32."""

from __future__ import annotations

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flexible.systems import arm, nodal_data, random_state

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
    dx.check_state(model, q, v)
    with pytest.raises(ValueError, match="'panel/modes' is not finite"):
        dx.check_state(model, q.at[model.q_slice("panel/modes")].set(np.nan), v)
    with pytest.raises(AttributeError, match="for trees of rigid bodies"):
        dx.inertial_parameters(model)
    with pytest.raises(TypeError, match=r"coriolis_matrix takes a Model, not FlexibleModel: 'model'"):
        dx.coriolis_matrix(model, q, v)

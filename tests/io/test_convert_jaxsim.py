"""JaxSim: an SDF of ours moves there as here, and states come back as they went."""

from __future__ import annotations

import importlib.util
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from trees import random_inertia

import dynax as dx

if importlib.util.find_spec("jaxsim") is None:
    pytest.skip("NO JAXSIM: NO STATE WENT THERE AND BACK (pip install jaxsim)", allow_module_level=True)
with warnings.catch_warnings():  # it says that it runs on a CPU
    warnings.simplefilter("ignore")
    import jaxsim.api as js


pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:jaxsim")  # of joints without limits


def creature(rng: np.random.Generator, root: str) -> dx.Model:
    place = lambda: dx.Transform(dx.Rotation.exp(rng.normal(size=3)), rng.normal(size=3))  # noqa: E731
    builder = dx.ModelBuilder(name="creature", gravity=(0.0, 0.0, -9.80665))
    builder.body("trunk", joint=dx.Free() if root == "free" else dx.Revolute((0, 0, 1)), inertia=random_inertia(rng))
    for name, parent, joint in (
        ("left", "trunk", dx.Revolute((1, 2, 2))),
        ("right", "trunk", dx.Prismatic((0, 1, 1))),
        ("wrist", "left", dx.Revolute((0, 1, 0))),
        ("hand", "right", dx.Revolute((1, 0, 0))),
    ):
        builder.body(name, parent=parent, joint=joint, placement=place(), inertia=random_inertia(rng))
    return builder.build()


@pytest.mark.parametrize("root", ["free", "fixed"])
def test_an_sdf_moves_in_jaxsim_as_the_model_does(root, rng):
    """Forward dynamics with a wrench on the base, the mass matrix, poses; power, and there and back."""
    model = creature(rng, root)
    written = dx.write_sdf(model)
    theirs = js.model.JaxSimModel.build_from_model_description(written.text, is_urdf=False)
    model = model.replace(gravity=jnp.array([0.0, 0.0, float(theirs.gravity)]))
    assert theirs.floating_base() == (root == "free")
    assert set(theirs.joint_names()) | {"trunk_joint"} == set(model.joint_names)
    convert = dx.JaxsimConverter(model, theirs)
    q = dx.integrate(model, dx.neutral(model), jnp.asarray(rng.normal(size=model.nv)))
    v, a, tau = jnp.asarray(rng.normal(size=(3, model.nv)))
    there = convert.to(q, v, a=a, tau=tau)
    back = convert.back(there.q, there.v, a=there.a, tau=there.tau)
    for mine, again in zip((q, v, a, tau), back, strict=True):
        np.testing.assert_allclose(again, mine, atol=1e-14)
    assert float(there.tau @ there.v) == pytest.approx(float(tau @ v), rel=1e-12)

    data = js.data.JaxSimModelData.build(model=theirs, **convert.keywords(q, v))
    links = jnp.zeros((theirs.number_of_links(), 6)).at[0].set(there.tau[:6])
    base, joints = js.model.forward_dynamics_aba(theirs, data, joint_forces=there.tau[6:], link_forces=links)
    found = convert.to(q, v, a=dx.forward_dynamics(model, q, v, tau)).a
    np.testing.assert_allclose(found, jnp.concatenate([base, joints]), rtol=1e-6, atol=1e-6)
    mass = js.model.free_floating_mass_matrix(theirs, data)
    energy = 0.5 * there.v @ mass @ there.v
    assert float(energy) == pytest.approx(float(dx.kinetic_energy(model, q, v)), rel=1e-9)
    hand = data._link_transforms[js.link.name_to_idx(theirs, link_name="hand")]
    pose = dx.forward_kinematics(model, q)
    np.testing.assert_allclose(pose.translation[model.body_index("hand")], hand[:3, 3], atol=1e-9)


def test_joints_that_jaxsim_does_not_have_are_refused(rng):
    model = creature(rng, "free")
    theirs = js.model.JaxSimModel.build_from_model_description(dx.write_sdf(model).text, is_urdf=False)
    with pytest.raises(ValueError, match="without a counterpart"):
        dx.JaxsimConverter(dx.fix_joints(model, ["wrist_joint"]), theirs)

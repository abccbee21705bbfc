"""Editing: the edited model is the same mechanism as one built that way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx


def link(seed: int) -> dx.SpatialInertia:
    rng = np.random.default_rng(seed)
    a = 0.2 * rng.standard_normal((3, 3))
    return dx.SpatialInertia(1.0 + rng.random(), 0.2 * rng.standard_normal(3), a @ a.T + 0.1 * np.eye(3))


def pose(seed: int) -> dx.Transform:
    rng = np.random.default_rng(seed)
    return dx.Transform(np.asarray(dx.Rotation.exp(rng.standard_normal(3)).matrix), 0.4 * rng.standard_normal(3))


def satellite(middle: dx.AbstractJoint, root: dx.AbstractJoint | None = None) -> dx.ModelBuilder:
    builder = dx.ModelBuilder(name="satellite")
    builder.body("bus", joint=root or dx.Free(), inertia=link(0), joint_name="root_joint")
    builder.body(
        "arm", parent="bus", joint=middle, placement=pose(1), inertia=link(1), anchor=(0.1, 0.0, 0.2), damping=0.3
    )
    builder.body("panel", parent="bus", joint=dx.Prismatic((1, 1, 0)), placement=pose(2), inertia=link(2))
    builder.body("hand", parent="arm", joint=dx.Revolute((0, 1, 1)), placement=pose(3), inertia=link(3), armature=0.2)
    builder.frame("camera", body="hand", placement=pose(4))
    return builder


@pytest.mark.parametrize(
    "middle",
    [
        dx.Spherical(),
        dx.Reversed(dx.Universal()),
        pytest.param(dx.Revolute((1, 2, 3)), marks=pytest.mark.slow),
        pytest.param(dx.RackAndPinion(0.2), marks=pytest.mark.slow),
    ],
)
@pytest.mark.spec("RBDA-4.1-FLOAT")
def test_change_root_keeps_the_motion(middle):
    """Two choices of floating base: the joints between accelerate alike, and so does every body."""
    model = satellite(middle).build()
    turned = dx.change_root(model, "hand")
    assert turned.body_names[0] == "hand"
    assert set(turned.body_names) == set(model.body_names)
    rng = np.random.default_rng(5)
    q, v = dx.random_configuration(model, jax.random.key(3)), jnp.asarray(rng.standard_normal(model.nv))
    tau = jnp.asarray(rng.standard_normal(model.nv)).at[:6].set(0.0)
    hand = dx.frame_pose(model, q, "hand")
    q2 = dx.neutral(turned).at[:7].set(jnp.concatenate([hand.translation, dx.Rotation(hand.rotation).quaternion()]))
    v2, tau2 = jnp.zeros(turned.nv).at[:6].set(dx.body_velocities(model, q, v)[3]), jnp.zeros(turned.nv)
    for joint in ("arm_joint", "panel_joint", "hand_joint"):
        q2 = q2.at[turned.q_slice(joint)].set(q[model.q_slice(joint)])
        v2 = v2.at[turned.v_slice(joint)].set(v[model.v_slice(joint)])
        tau2 = tau2.at[turned.v_slice(joint)].set(tau[model.v_slice(joint)])
    a, a2 = dx.forward_dynamics(model, q, v, tau), dx.forward_dynamics(turned, q2, v2, tau2)
    for joint in ("arm_joint", "panel_joint", "hand_joint"):
        np.testing.assert_allclose(a2[turned.v_slice(joint)], a[model.v_slice(joint)], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(a2[:6], dx.body_accelerations(model, q, v, a)[3], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(
        dx.frame_pose(turned, q2, "camera").translation, dx.frame_pose(model, q, "camera").translation, atol=1e-12
    )


def test_change_root_refuses_a_held_tree():
    with pytest.raises(dx.ModelError, match=r"root_joint.*root='free'"):
        dx.change_root(satellite(dx.Spherical(), dx.Revolute((0, 0, 1))).build(), "hand")


@pytest.mark.spec("RBDA-9.1-LOCK")
def test_fixed_joint_is_locked_joint():
    """Welding a joint where it stands equals holding it there."""
    model = satellite(dx.Spherical()).build()
    q = dx.random_configuration(model, jax.random.key(1))
    fixed = dx.fix_joints(model, {"arm_joint": np.asarray(q[model.q_slice("arm_joint")])})
    assert fixed.nv == model.nv - 3
    assert "arm" in fixed.frame_names
    rng = np.random.default_rng(0)
    v, tau = rng.standard_normal(model.nv), rng.standard_normal(model.nv)
    v[model.v_slice("arm_joint")] = 0.0
    left = np.r_[0:6, model.v_slice("panel_joint"), model.v_slice("hand_joint")]
    coordinates = np.r_[0:7, model.q_slice("panel_joint"), model.q_slice("hand_joint")]
    a, _ = dx.hybrid_dynamics(model, q, v, tau, np.zeros(model.nv), ("arm_joint",))
    same = dx.forward_dynamics(fixed, q[coordinates], v[left], tau[left])
    np.testing.assert_allclose(same, a[left], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(
        dx.frame_pose(fixed, q[coordinates], "arm").rotation, dx.frame_pose(model, q, "arm").rotation, atol=1e-12
    )


def test_remove_then_attach_gives_the_model_back():
    model = satellite(dx.Spherical()).build()
    rest = dx.remove_subtree(model, "hand")
    assert rest.body_names == ("bus", "arm", "panel")
    assert rest.frame_names == ()
    gripper = dx.ModelBuilder().body("hand", joint=dx.Free(), inertia=link(3))
    gripper = gripper.frame("camera", body="hand", placement=pose(4)).build()
    whole = dx.attach(rest, gripper, body="arm", placement=pose(3), joint=dx.Revolute((0, 1, 1)), prefix="tool/")
    assert whole.body_names == ("bus", "arm", "panel", "tool/hand")
    assert whole.frame_names == ("tool/camera",)
    bare = model.replace(armature=0 * model.armature)
    q, v = dx.random_configuration(model, jax.random.key(1)), jnp.linspace(-1.0, 1.0, model.nv)
    np.testing.assert_allclose(dx.bias_force(whole, q, v), dx.bias_force(bare, q, v), rtol=1e-12)


def test_attach_to_a_frame_in_place_of_the_world():
    arm = satellite(dx.Spherical()).build()
    tool = dx.ModelBuilder().body("finger", joint=dx.Prismatic((1, 0, 0)), placement=pose(7), inertia=link(7)).build()
    whole = dx.attach(arm, tool, body="camera", placement=pose(8))
    q = dx.random_configuration(whole, jax.random.key(0)).at[-1].set(0.0)
    at_camera = dx.frame_pose(whole, q, "camera") @ pose(8) @ pose(7)
    np.testing.assert_allclose(dx.frame_pose(whole, q, "finger").translation, at_camera.translation, atol=1e-12)
    with pytest.raises(dx.ModelError, match="two bodies or frames"):
        dx.attach(whole, tool, body="camera")
    with pytest.raises(dx.ModelError, match="root floats"):
        dx.attach(arm, tool, body="camera", joint=dx.Spherical())


def test_builder_round_trip():
    model = satellite(dx.RackAndPinion(0.2)).build()
    again = dx.to_builder(model).build()
    assert again.structure == model.structure
    for a, b in zip(jax.tree.leaves(again), jax.tree.leaves(model), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-15)


# With loops and gears.


def linkage(**options) -> dx.ModelBuilder:
    """Two arms on a bus, their tips pinned together, and a panel that follows one of them."""
    builder = satellite(dx.Revolute((0, 1, 1)), **options)
    builder.body("other", parent="bus", joint=dx.Spherical(), placement=pose(5), inertia=link(5))
    builder.frame("grip", body="other", placement=pose(6))
    ends = {"predecessor_placement": pose(7), "successor_placement": pose(8)}
    builder.loop("pin", predecessor="camera", successor="grip", joint=dx.Spherical(), **ends)
    return builder.gear("panel_joint", "arm_joint", ratio=0.5, offset=0.1)


def residual_at(model: dx.Model, like: dx.Model, q) -> np.ndarray:
    """The residual where joints stand as they do in another model at `q`."""
    own = dx.neutral(model)
    for joint in set(model.joint_names) & set(like.joint_names):
        own = own.at[model.q_slice(joint)].set(q[like.q_slice(joint)])
    return np.asarray(dx.constraint_residual(model, own))


def test_loops_and_gears_stay_when_the_model_is_edited():
    model = linkage().build()
    q = dx.random_configuration(model, jax.random.key(1))
    expected = np.asarray(dx.constraint_residual(model, q))
    np.testing.assert_allclose(dx.constraint_residual(dx.to_builder(model).build(), q), expected, atol=1e-14)
    # Another root: the loop ties the same frames.
    turned = dx.change_root(model, "hand")
    np.testing.assert_allclose(residual_at(turned, model, q), expected, atol=1e-12)
    # A joint of the loop welded where it stands.
    fixed = dx.fix_joints(model, {"hand_joint": q[model.q_slice("hand_joint")]})
    assert fixed.couplings == model.couplings
    np.testing.assert_allclose(residual_at(fixed, model, q), expected, atol=1e-12)


def test_a_subtree_takes_its_loops_and_gears_along():
    model = linkage().build()
    assert dx.remove_subtree(model, "hand").loop_names == ()
    assert dx.remove_subtree(model, "hand").couplings == model.couplings
    assert dx.remove_subtree(model, "panel").couplings == ()
    assert dx.remove_subtree(model, "panel").loop_names == ("pin",)
    rigid = dx.fix_joints(model, ("arm_joint", "hand_joint", "other_joint"))
    assert rigid.loop_names == ()  # both ends of the pin are on the bus now


def test_attached_loops_and_gears_are_those_of_the_part():
    part = linkage(root=dx.Revolute((0, 0, 1))).build()
    base = satellite(dx.Revolute((0, 1, 0))).build()
    whole = dx.attach(base, part, body="camera", placement=pose(9), prefix="part/")
    assert whole.loop_names == ("part/pin",)
    assert whole.couplings == (("part/panel_joint", "part/arm_joint"),)
    q = dx.random_configuration(part, jax.random.key(2))
    own = dx.random_configuration(whole, jax.random.key(3))
    for joint in part.joint_names:
        own = own.at[whole.q_slice("part/" + joint)].set(q[part.q_slice(joint)])
    np.testing.assert_allclose(dx.constraint_residual(whole, own), dx.constraint_residual(part, q), atol=1e-12)


def trains() -> dx.ModelBuilder:
    """Five hinges: a pair of gears, a differential and a cam of two, which all follow the first two."""
    builder = dx.ModelBuilder(name="trains")
    for k, name in enumerate("abcde"):
        builder.body(name, joint=dx.Revolute((0, 0, 1)), placement=pose(k), inertia=link(k), joint_name=name)
    builder.gear("c", "a", ratio=-2.0, offset=0.3)
    builder.gear("d", ("a", "b"), ratio=(0.5, 2.0), offset=0.1)
    return builder.gear("e", ("a", "b"), function=lambda x, y: jnp.sin(x) * y**2, ratio=3.0)


def test_gears_of_fixed_joints_hold_the_others():
    """The conditions that are left are the ones there were, with what is fixed put in."""
    model = trains().build()
    q = jnp.array([0.4, -0.7, 0.2, 0.9, 1.1])
    at = dict(zip("abcde", np.asarray(q), strict=True))

    def check(fixed, scale):
        left = dx.fix_joints(model, {name: at[name] for name in fixed})
        rows = [list(dx.constraint_names(model)).index(name) for name in dx.constraint_names(model) if name in scale]
        expected = np.asarray(dx.constraint_residual(model, q))[rows]
        found = residual_at(left, model, q)
        np.testing.assert_allclose(found, expected * np.array(list(scale.values())), atol=1e-14)
        return left

    assert check("a", {"c": 1, "d": 1, "e": 1}).couplings == (("c",), ("d", "b"), ("e", "b"))
    assert check("ab", {"c": 1, "d": 1, "e": 1}).couplings == (("c",), ("d",), ("e",))
    # Followers that are fixed: the condition is one on what they followed.
    assert check("c", {"c": 0.5, "d": 1, "e": 1}).couplings == (("a",), ("d", "a", "b"), ("e", "a", "b"))
    assert check("d", {"c": 1, "d": -2, "e": 1}).couplings == (("c", "a"), ("a", "b"), ("e", "a", "b"))
    assert check("ac", {"d": 1, "e": 1}).couplings == (("d", "b"), ("e", "b"))
    with pytest.raises(dx.ModelError, match=r"joint 'e'.*'a', 'b'.*fix what it follows"):
        dx.fix_joints(model, ["e"])


def test_a_joint_that_is_held_embeds():
    """A gear without a source leaves no freedom: as if the joint were welded there."""
    model = trains().build()
    held = dx.fix_joints(model, {"a": 0.4})
    embedded = dx.embed(held, independent=["b"])
    assert embedded.nv == 1
    assert embedded.independent_joints == ("b",)
    q = dx.assemble(held, dx.neutral(held).at[held.q_slice("b")].set(-0.7), hold=["b"]).q
    welded = dx.embed(dx.fix_joints(held, {"c": q[held.q_slice("c")]}), independent=["b"])
    v, tau = jnp.array([0.6]), jnp.array([0.2])
    found = dx.forward_dynamics(embedded, q, v, tau)
    closed = dx.constrained_dynamics(held, q, dx.embedding_matrix(embedded, q) @ v, tau * (jnp.arange(4) == 0))
    np.testing.assert_allclose(found[0], closed.a[held.v_slice("b")][0], rtol=1e-12)
    own = jnp.delete(q, held.q_slice("c").start)
    np.testing.assert_allclose(dx.forward_dynamics(welded, own, v, tau), found, rtol=1e-12)


def test_cycles_of_gears_are_reported():
    """Two joints that mimic one another by unequal ratios can only stand where both agree."""

    def cycle(*ratios, offset=0.0):
        builder = dx.ModelBuilder()
        for k in range(len(ratios)):
            builder.body(f"b{k}", joint=dx.Revolute(), inertia=link(k), joint_name=f"j{k}")
        for k, ratio in enumerate(ratios):
            builder.gear(f"j{k}", f"j{(k + 1) % len(ratios)}", ratio=ratio, offset=offset)
        return [str(finding) for finding in builder.build().report if "gear" in finding.element]

    (text,) = cycle(2.0, 3.0)
    assert text.startswith("gear of joint 'j0': 'j0' follows 'j1' follows 'j0', by ratios whose product is 6")
    assert "hold these joints" in text
    (text,) = cycle(2.0, 0.5)
    assert "redundant" in text
    (text,) = cycle(2.0, 0.5, offset=1.0)
    assert "no position meets all" in text
    (text,) = cycle(1.0, 1.0, 2.0)
    assert "product is 2" in text
    assert not [finding for finding in trains().build().report if "gear" in finding.element]

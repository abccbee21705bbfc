"""Models and their builder: names, errors, drawings, frames, welds, pytrees."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees

import dynax as dx
from dynax.spatial import Transform

BOX = dx.SpatialInertia(2.0, (0.1, 0.0, 0.0), (0.1, 0.2, 0.25))


def pair():
    return (
        dx.ModelBuilder(name="pair")
        .body("base", joint=dx.Revolute(), inertia=BOX)
        .body("arm", parent="base", joint=dx.Prismatic((1, 0, 0)), inertia=BOX, position_limits=(-0.5, 0.25))
    )


def refusal(call) -> dx.ModelError:
    with pytest.raises(dx.ModelError) as caught:
        call()
    return caught.value


@pytest.mark.spec("RBDA-4.1-GRAPH", "RBDA-4.6-MODEL")
@pytest.mark.parametrize(
    ("call", "element", "reason"),
    [
        (lambda b: b.body("", joint=dx.Revolute()), "body ''", "non-empty"),
        (lambda b: b.body("world"), "body 'world'", "inertial frame"),
        (lambda b: b.body("arm"), "body 'arm'", "two bodies or frames"),
        (lambda b: b.frame("arm", body="base"), "frame 'arm'", "two bodies or frames"),
        (lambda b: b.body("hand", parent="amr"), "body 'hand'", "did you mean one of: 'arm'"),
        (lambda b: b.frame("tip", body="bsae"), "frame 'tip'", "'base'"),
        (lambda b: b.body("hand", joint=dx.Revolute), "body 'hand'", "not a joint"),
        (lambda b: b.body("hand", joint=dx.Revolute(), joint_name="arm_joint"), "joint 'arm_joint'", "two joints"),
        (lambda b: b.body("hand", joint=dx.Revolute(), damping=-1.0), "joint 'hand_joint'", "negative"),
        (lambda b: b.body("hand", joint=dx.Revolute(), armature=(1.0, 2.0)), "joint 'hand_joint'", "shape (1,)"),
        (lambda b: b.body("hand", joint=dx.Revolute(), stiffness=np.nan), "joint 'hand_joint'", "not finite"),
        (lambda b: b.body("hand", joint=dx.Revolute(), position_limits=(1.0, -1.0)), "joint 'hand_joint'", "wrong way"),
        (lambda b: b.body("hand", inertia=dx.SpatialInertia(-1.0)), "body 'hand'", "negative"),
        (lambda b: b.body("hand", inertia=dx.SpatialInertia(np.inf)), "body 'hand'", "not finite"),
        (lambda b: b.body("hand", placement=Transform(2 * np.eye(3), np.zeros(3))), "body 'hand'", "not a rotation"),
        (lambda b: b.body("hand", placement=(0, 0, 1)), "body 'hand'", "(0, 0, 1), not a Transform"),
        (lambda b: b.frame("tip", body="arm", placement=np.eye(4)), "frame 'tip'", "from_translation"),
        (
            lambda b: b.body("hand", placement=Transform(np.diag([1.0, 1, -1]), np.zeros(3))),
            "body 'hand'",
            "not a rotation",
        ),
        (lambda b: b.body("hand", placement=Transform(np.eye(3), np.full(3, np.nan))), "body 'hand'", "not finite"),
        (lambda b: b.gear("arm_joint", "elbow").build(), "gear of joint 'arm_joint'", "no joint named 'elbow'"),
    ],
)
def test_a_builder_refuses(call, element, reason):
    error = refusal(lambda: call(pair()))
    assert error.element == element
    assert reason in str(error)
    assert str(error).startswith(element)


def test_odd_inertias_are_reported():
    model = (
        dx.ModelBuilder()
        .body("plate", joint=dx.Revolute(), inertia=dx.SpatialInertia(1.0, (0, 0, 0), (0.1, 0.1, 0.5)))
        .body("ghost", parent="plate", joint=dx.Revolute())
        .build()
    )
    texts = [str(finding) for finding in model.report]
    assert any("triangle inequality" in text and "plate" in text for text in texts)
    assert any("forward dynamics is singular" in text and "ghost" in text for text in texts)
    assert "2 findings" in repr(model)
    # With an armature nothing is singular.
    assert not dx.ModelBuilder().body("rotor", joint=dx.Revolute(), armature=0.1).build().report


@pytest.mark.spec("RBDA-4.6-MODEL", "RBDA-4.6-OFFSETS")
def test_names_and_slices():
    model = pair().body("ball", parent="arm", joint=dx.Spherical(), inertia=BOX).frame("tip", body="ball").build()
    assert model.body_names == ("base", "arm", "ball")
    assert model.joint_names == ("base_joint", "arm_joint", "ball_joint")
    assert model.frame_names == ("tip",)
    assert model.parents == (-1, 0, 1)
    assert (model.nq, model.nv, model.num_bodies) == (6, 5, 3)
    assert model.q_slice("ball_joint") == slice(2, 6)
    assert model.v_slice("ball_joint") == slice(2, 5)
    assert model.body_index("arm") == 1
    for call, near in ((model.body_index, "'ball'"), (model.joint_index, "'ball_joint'"), (model.locate, "'ball'")):
        with pytest.raises(KeyError, match=re.escape(near)):
            call("bal")
    np.testing.assert_array_equal(dx.neutral(model), [0, 0, 1, 0, 0, 0])


def test_drawing():
    text = repr(pair().frame("tip", body="arm").build())
    assert text.splitlines() == [
        "Model 'pair': 2 bodies, nq=2, nv=2, 4 kg",
        "world",
        "└─ base (base_joint: Revolute, 2 kg)",
        "   └─ arm (arm_joint: Prismatic, 2 kg) [tip]",
    ]
    # A chain of thousands is drawn without recursion; inside a transformation there are no numbers to print.
    names = []
    jax.make_jaxpr(lambda m: names.append(repr(m)) or m.mass)(pair().build())
    assert "kg" not in names[0]


def test_a_long_chain_is_built_and_drawn():
    builder = dx.ModelBuilder(name="chain")
    for k in range(1200):
        builder.body(f"l{k}", parent=f"l{k - 1}" if k else "world", joint=dx.Revolute(), inertia=BOX)
    model = builder.build()
    assert model.topology.depths[-1] == 1200
    assert len(repr(model).splitlines()) == 1202


def test_replace():
    model = pair().build()
    heavier = model.replace(mass=2 * model.mass)
    np.testing.assert_array_equal(heavier.mass, 2 * model.mass)
    assert heavier.structure is model.structure
    with pytest.raises(ValueError, match="'mass'"):
        model.replace(maas=model.mass)
    with pytest.raises(ValueError):
        model.replace(structure=model.structure)
    with pytest.raises(AttributeError):
        model.mass = model.mass  # type: ignore[misc]
    assert float(model.at_time(2.5).time) == 2.5


@pytest.mark.parametrize(
    ("leaves", "words"),
    [
        ({"mass": jnp.ones(3)}, r"`mass` has shape \(3,\), expected \(2,\) in model 'pair'"),
        ({"mass": [1.0] * 7}, r"`mass` has shape \(7,\)"),
        ({"mass": jnp.ones((2, 5))}, r"`mass` has shape \(2, 5\)"),
        ({"gravity": 0}, r"`gravity` has shape \(\), expected \(3,\)"),
        ({"mass": "heavy"}, "`mass` must be an array of numbers, got 'heavy'"),
        ({"mass": None}, "`mass` must be an array of numbers"),
        ({"placements": np.eye(3)}, "`placements` must be a Transform"),
        ({"placements": Transform()}, r"`placements.rotation` has shape \(3, 3\), expected \(2, 3, 3\)"),
        ({"frames": Transform(np.eye(3)[None], np.zeros((2, 3)))}, r"`frames.rotation` has shape \(1, 3, 3\)"),
    ],
)
def test_replace_refuses_what_does_not_fit(leaves, words):
    with pytest.raises(ValueError, match=words):
        pair().build().replace(**leaves)


def test_replace_takes_numbers_batches_and_tracers():
    model = pair().build()
    for mass in ([3, 4], (3.0, 4.0), np.array([3, 4]), jnp.array([3, 4])):
        changed = model.replace(mass=mass)
        assert isinstance(changed.mass, jax.Array)
        assert changed.mass.dtype == jnp.float64
        np.testing.assert_array_equal(changed.mass, [3.0, 4.0])
    assert model.replace(mass=jnp.ones(2, jnp.float32)).mass.dtype == jnp.float32
    assert model.replace(mass=jnp.ones((5, 4, 2)), time=jnp.ones(7)).mass.shape == (5, 4, 2)
    poses = Transform(jnp.tile(model.placements.rotation, (5, 1, 1, 1)), jnp.zeros((5, 2, 3)))
    assert model.replace(placements=poses).placements.translation.shape == (5, 2, 3)
    shapes = jax.eval_shape(lambda m: m, model)
    assert shapes.replace(mass=jax.ShapeDtypeStruct((9, 2), jnp.float32)).mass.shape == (9, 2)

    @jax.jit
    @jax.vmap
    def total(mass):
        return model.replace(mass=mass, gravity=(0, 0, mass[0])).mass.sum()

    np.testing.assert_array_equal(total(jnp.array([[1.0, 2.0], [3.0, 4.0]])), [3.0, 7.0])
    with pytest.raises(ValueError, match=r"expected \(2,\)"):
        total(jnp.ones((2, 3)))


@pytest.mark.spec("RBDA-4.6-MODEL")
def test_a_model_is_a_pytree():
    model = pair().build()
    leaves, structure = jax.tree.flatten(model)
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    again = jax.tree.unflatten(structure, leaves)
    assert again.structure == model.structure
    assert hash(again.structure) == hash(model.structure)
    # Built twice, the static part is the same: one compiled program for both.
    other = pair().build().replace(mass=jnp.array([5.0, 6.0]))
    assert jax.tree.structure(other) == structure
    assert jax.tree.structure(pair().frame("tip", body="arm").build()) != structure

    traces = []

    @jax.jit
    def total(m):
        traces.append(1)
        return m.mass.sum()

    assert (float(total(model)), float(total(other)), len(traces)) == (4.0, 11.0, 1)
    batch = jax.vmap(lambda mass: model.replace(mass=mass))(jnp.arange(6.0).reshape(3, 2))
    np.testing.assert_array_equal(jax.vmap(total, in_axes=(jax.tree.map(lambda a: None, model).replace(mass=0),))(
        model.replace(mass=batch.mass)), [1.0, 5.0, 9.0])  # fmt: skip


@pytest.mark.spec("RBDA-2.7-RULES", "RBDA-3.5-ZERODOF", "RBDA-9.1-LOCK", "SOA-TIPF")
def test_welded_bodies_are_one_body(rng):
    inertias = [trees.random_inertia(rng) for _ in range(4)]
    poses = [trees.random_pose(rng) for _ in range(4)]
    built = (
        dx.ModelBuilder()
        .body("a", joint=dx.Revolute((1, 0, 1)), placement=poses[0], inertia=inertias[0])
        .body("a2", parent="a", placement=poses[1], inertia=inertias[1])
        .body("a3", parent="a2", placement=poses[2], inertia=inertias[2])
        .body("b", parent="a3", joint=dx.Spherical(), placement=poses[3], inertia=inertias[3])
        .body("foot", placement=poses[2], inertia=inertias[1])
        .build()
    )
    assert built.body_names == ("a", "b")
    assert built.frame_names == ("a2", "a3", "foot")
    inner = poses[1] @ poses[2]
    whole = inertias[0].parameters + (poses[1] @ inertias[1]).parameters + (inner @ inertias[2]).parameters
    once = (
        dx.ModelBuilder()
        .body("a", joint=dx.Revolute((1, 0, 1)), placement=poses[0], inertia=dx.SpatialInertia.from_parameters(whole))
        .body("b", parent="a", joint=dx.Spherical(), placement=inner @ poses[3], inertia=inertias[3])
        .build()
    )
    q = dx.random_configuration(once, jax.random.key(0))
    v, tau = jnp.asarray(rng.normal(size=(2, 4)))
    np.testing.assert_allclose(dx.forward_dynamics(built, q, v, tau), dx.forward_dynamics(once, q, v, tau), rtol=1e-10)
    # A weld kept as a joint: a slide of no freedom, held where it is.
    held = (
        dx.ModelBuilder()
        .body("a", joint=dx.Revolute((1, 0, 1)), placement=poses[0], inertia=inertias[0])
        .body("a2", parent="a", joint=dx.Driven(dx.Prismatic(), zero), placement=poses[1], inertia=inertias[1])
        .body("a3", parent="a2", joint=dx.Driven(dx.Spherical(), upright), placement=poses[2], inertia=inertias[2])
        .body("b", parent="a3", joint=dx.Spherical(), placement=poses[3], inertia=inertias[3])
        .build()
    )
    assert held.nv == 4
    np.testing.assert_allclose(dx.forward_dynamics(held, q, v, tau), dx.forward_dynamics(once, q, v, tau), rtol=1e-10)
    # Frames stand where the links stood.
    pose = dx.frame_pose(built, q, "a3")
    expected = dx.frame_pose(built, q, "a") @ inner
    np.testing.assert_allclose(pose.translation, expected.translation, atol=1e-14)
    np.testing.assert_allclose(pose.rotation, expected.rotation, atol=1e-14)
    np.testing.assert_allclose(dx.frame_pose(built, q, "foot").translation, poses[2].translation)


@pytest.mark.parametrize("far", [1e3, 1e5, 1e7])
def test_an_inertia_far_from_its_frame_keeps_its_digits(far):
    """A spacecraft in a planet's frame: without a weld the numbers are those of the user, in every bit."""
    place = (far, 0.3 * far, -0.7 * far)
    small = dx.SpatialInertia(1.0, place, (2e-4, 3e-4, 4e-4))
    bare = dx.ModelBuilder().body("a", joint=dx.Free(), inertia=small)
    np.testing.assert_array_equal(bare.build().inertia, [[2e-4, 3e-4, 4e-4, 0, 0, 0]])
    np.testing.assert_array_equal(bare.build().com, [place])
    panel = dx.SpatialInertia(1.0, (0.0, 0.0, 0.0), (1e-4, 1e-4, 1e-4))
    bare.body("panel", parent="a", placement=dx.Transform.from_translation(place), inertia=panel)
    np.testing.assert_allclose(bare.build().inertia, [[3e-4, 4e-4, 5e-4, 0, 0, 0]], rtol=1e-12)


def zero(t):
    return 0.0 * t


def upright(t):
    return jnp.stack([1.0 + 0.0 * t, 0.0 * t, 0.0 * t, 0.0 * t])


def test_random_configurations_keep_the_limits():
    model = pair().body("ball", parent="arm", joint=dx.Free(), inertia=BOX).build()
    q = jax.vmap(lambda key: dx.random_configuration(model, key))(jax.random.split(jax.random.key(1), 500))
    slide = np.asarray(q[:, 1])
    assert slide.min() >= -0.5
    assert slide.max() <= 0.25
    assert np.ptp(slide) > 0.7
    assert np.ptp(np.asarray(q[:, 0])) > 6.0  # no limits: a whole turn
    np.testing.assert_allclose(np.linalg.norm(q[:, 5:], axis=1), 1.0, atol=1e-12)
    assert len(np.unique(slide)) == 500


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m, x: dx.mass_matrix(m, None), r"`q` is None, .*shape \(2,\) \(nq of model 'pair'\)"),
        (lambda m, x: dx.forward_dynamics(m, x, None, x), r"`v` is None, .*nv of model 'pair'"),
        (lambda m, x: dx.inverse_dynamics(m, x, x, None), "`a` is None"),
        (lambda m, x: dx.step(m, x, x, None, 0.1), "`tau` is None"),
        (lambda m, x: dx.rollout(m, None, x, jnp.zeros((3, 2)), 0.1), "`q` is None"),
        (lambda m, x: dx.forward_kinematics(m, 1j * x), r"`q` is complex \(complex128\), expected real numbers"),
        (lambda m, x: dx.forward_dynamics(m, x, x, x, 1j * np.zeros((2, 6))), "`external` is complex"),
        (lambda m, x: dx.rollout(m, x, x, 1j * jnp.zeros((3, 2)), 0.1), "`controls` is complex"),
        (lambda m, x: dx.linearize(m, x, x, 1j * x), "`u` is complex"),
        (lambda m, x: dx.rollout(m, x, x, jnp.zeros((3, 2)), None), "`dt` is None, expected the length of a step"),
        (lambda m, x: dx.rollout(m, x, x, jnp.zeros((3, 2)), 1j), "`dt` is complex"),
        (lambda m, x: dx.step(m, x, x, x, "0.1 s"), "`dt` is no array of numbers"),
        (lambda m, x: dx.mass_matrix(m, x.astype(jnp.bfloat16)), "`q` is bfloat16, .* float32 or float64"),
        (lambda m, x: dx.forward_dynamics(m, *(3 * [x.astype(jnp.float16)])), "`q` is float16"),
        (lambda m, x: dx.kinetic_energy(m, np.zeros(2, int), x.astype(jnp.float16)), "`v` is float16"),
        (lambda m, x: dx.linearize(m, x, x, None), "`u` is no array of numbers"),
        (lambda m, x: dx.mass_matrix(m, ["one", "two"]), "`q` is no array of numbers"),
    ],
)
def test_what_is_no_array_of_real_numbers_is_named(call, words):
    """A complex step, for one, gave the derivative zero."""
    with pytest.raises(TypeError, match=words):
        call(pair().build(), jnp.zeros(2))


@pytest.mark.parametrize(
    "joint",
    [
        lambda size: dx.Driven(dx.Revolute((0, 1, 0)), lambda t: size * jnp.sin(t)),
        lambda size: dx.UserJoint(lambda q: dx.Transform(jnp.eye(3), size * jnp.array([1.0, 0.0, 0.0]) * q[0])),
    ],
)
def test_a_joint_that_takes_what_is_traced_is_named(joint):
    def mass(size):
        return dx.ModelBuilder().body("arm", joint=joint(size), inertia=BOX).build().mass.sum()

    for traced in (jax.grad(mass), jax.jit(mass)):
        with pytest.raises(dx.ModelError, match=r"the function of (Driven|UserJoint)\(.* takes a value of an outer"):
            traced(0.5)


def test_what_may_be_left_out_is_none():
    model = pair().build()
    q, v = dx.check_state(model, jnp.zeros(2))
    assert v is None
    assert dx.operational_space(model, q, "arm", frame="body").bias is None
    assert np.all(np.isfinite(dx.open_system(model, q, q, nodes="arm").free.acceleration))


def test_shapes_are_checked_and_named():
    model = pair().build()
    with pytest.raises(ValueError, match=r"`q` has shape \(3,\), expected \(2,\).*jax.vmap"):
        dx.mass_matrix(model, jnp.zeros(3))
    with pytest.raises(ValueError, match=r"`external` has shape \(1, 6\)"):
        dx.forward_dynamics(model, jnp.zeros(2), jnp.zeros(2), jnp.zeros(2), jnp.zeros((1, 6)))
    with pytest.raises(ValueError, match="'body', 'world' or 'world_aligned'"):
        dx.jacobian(model, jnp.zeros(2), "arm", frame="local")
    with pytest.raises(KeyError, match="'arm'"):
        dx.jacobian(model, jnp.zeros(2), "amr", frame="body")
    with pytest.raises(KeyError, match="goes by its name, a text, not by 3"):
        dx.frame_pose(model, jnp.zeros(2), 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tuple of joint names"):
        dx.hybrid_dynamics(model, *[jnp.zeros(2)] * 4, "arm_joint")


def test_a_batched_model_in_a_call_for_one_says_what_to_do():
    model = pair().build()
    q = jnp.zeros(2)
    for name, leaf in (("mass", jnp.ones((16, 2))), ("gravity", jnp.ones((4, 3))), ("time", jnp.ones(5))):
        with pytest.raises(ValueError, match=rf"`{name}` has batch axes .*jax.vmap.*{name}=x"):
            dx.mass_matrix(model.replace(**{name: leaf}), q)
    poses = Transform(jnp.tile(model.hinges.rotation, (5, 1, 1, 1)), jnp.zeros((5, 2, 3)))
    with pytest.raises(ValueError, match=r"`hinges` has batch axes \(5,\)"):
        dx.forward_kinematics(model.replace(hinges=poses), q)
    many = jax.vmap(lambda mass: dx.mass_matrix(model.replace(mass=mass), q))(jnp.ones((16, 2)))
    assert many.shape == (16, 2, 2)


def test_the_world_is_a_frame_by_name():
    model = pair().build()
    pose = dx.frame_pose(model, jnp.array([0.3, 0.1]), "world")
    assert isinstance(pose.rotation, jax.Array)
    np.testing.assert_array_equal(pose.rotation, np.eye(3))
    np.testing.assert_array_equal(pose.translation, np.zeros(3))
    np.testing.assert_array_equal(dx.jacobian(model, jnp.zeros(2), "world", frame="world"), np.zeros((6, 2)))

"""How many parameters forces show, of robots for which that is known, and of which combinations."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees
from constraints.mechanisms import four_bar
from identify.robots_of import DH, Z, add_arm, add_chain, columns_of
from oracles.robots import forest, prefix

import dynax as dx
from dynax import identify

Y = (0.0, 1.0, 0.0)
DRIVE = ("armature", "damping", "friction_loss", "offset")
FRICTION = ("damping", "friction_loss")
# Inertias alone, with armature, with viscous and Coulomb friction, with both, and with offsets.
EXTRAS = ((), ("armature",), FRICTION, ("armature", *FRICTION), DRIVE)
SIX, SEVEN = (36, 40, 48, 52, 58), (43, 48, 57, 62, 69)
FILES = {
    "panda_description/urdf/panda.urdf": SEVEN,
    "ur_description/urdf/ur5_robot.urdf": SIX,
    "ur_description/urdf/ur10_robot.urdf": SIX,
    "kinova_description/robots/kinova.urdf": SIX,
    "xarm_description/urdf/xarm7.urdf": (43,),
    "z1_description/urdf/z1.urdf": SEVEN,
    "talos_data/robots/talos_left_arm.urdf": (45,),
}
FLOATING = {"solo_description/robots/solo12.urdf": 94, "solo_description/robots/solo.urdf": 66}
LARGE = {
    "anymal_b_simple_description/robots/anymal.urdf": 94,
    "hyq_description/robots/hyq_no_sensors.urdf": 94,
    "go2_description/urdf/go2.urdf": 94,
    "a1_description/urdf/a1.urdf": 94,
    "g1_description/urdf/g1_29dof_rev_1_0.urdf": 213,
    "icub_description/robots/icub_reduced.urdf": 213,
    "talos_data/robots/talos_reduced.urdf": 234,
}


class Sampled:
    """A forest and its regressors at random states; each robot has its own block of them."""

    def __init__(self, model: dx.Model, samples: int, terms=("inertias", *DRIVE)):
        self.model, self.names = model, identify.parameter_names(model, terms)
        self.matrix = identify.random_regressor(model, samples, terms=terms).reshape(samples, model.nv, -1)

    def block(self, start: str, extra=(), *, but="/nothing/") -> tuple[np.ndarray, list[int]]:
        """Freedoms and columns of a robot, with those of its drives that are asked for."""
        freedoms, columns = columns_of(self.model, self.names, start, but)
        what = [self.names[k].split()[0] for k in columns]
        return freedoms, [k for k, w in zip(columns, what, strict=True) if w not in DRIVE or w in extra]

    def of(self, start: str, extra=(), *, but="/nothing/", rows=None) -> identify.Identifiability:
        freedoms, columns = self.block(start, extra, but=but)
        block = self.matrix[:, freedoms[slice(rows)]][..., columns]
        return identify.identifiability_of(block, [self.names[k] for k in columns])


@pytest.fixture(scope="module")
def robots() -> Sampled:
    return Sampled(dx.load(level((*((name, "fixed") for name in FILES), *((name, "free") for name in FLOATING)))), 120)


def level(robots) -> str:
    """The robots of a forest, each upright: how the first axis stands to gravity counts."""
    return re.sub(r'rpy="\d+ 0\.5 [\d.]+"', 'rpy="0 0 0"', forest(robots))


@pytest.fixture(scope="module")
def built() -> Sampled:
    """Arms by their geometry, chains of random axes, and floating ones."""
    builder = dx.ModelBuilder()
    for name in DH:
        add_arm(builder, name)
    rng = np.random.default_rng(8)
    axes = [dx.Revolute(axis) for axis in rng.normal(size=(5, 3))]
    add_chain(builder, "slanted", axes)
    add_chain(builder, "vertical", [dx.Revolute(Z), *axes[1:]], reach=[dx.Transform.identity(), *poses(rng, 4)])
    add_chain(builder, "upright", [dx.Revolute(Y)] * 4, reach=links(4))
    add_chain(builder, "pair", [dx.Revolute(Y)] * 2, reach=links(2))
    add_chain(builder, "level", [dx.Revolute(Z)] * 4, reach=links(4))
    add_chain(builder, "body", [dx.Free()])
    add_chain(builder, "turning", [dx.Free(), *axes[:3]])
    add_chain(builder, "sliding", [dx.Free(), *(dx.Prismatic(axis) for axis in rng.normal(size=(3, 3)))])
    add_chain(builder, "ball", [dx.Free(), dx.Spherical()])
    return Sampled(builder.build(), 120)


def poses(rng, count):
    return [trees.random_pose(rng) for _ in range(count)]


def links(count):
    return [dx.Transform.from_translation((0.5 * (k > 0), 0.0, 0.0)) for k in range(count)]


@pytest.mark.spec("ID-02")
@pytest.mark.parametrize("name", FILES)
def test_counts_of_arms_from_files(robots, name):
    start = prefix(list(FILES).index(name), name)
    found = [robots.of(start, extra, but="finger") for extra, _ in zip(EXTRAS, FILES[name], strict=False)]
    assert tuple(f.rank for f in found) == FILES[name]
    # Axes of the Kinova have five digits in its file: with a tolerance of 1e-10 it has another rank.
    assert min(f.gap for f in found) > (1e6 if "kinova" in name else 1e12)


@pytest.mark.spec("ID-02")
def test_a_rounded_angle_is_told_from_a_parameter(robots):
    """The file of the xArm turns its second axis by 1.5708: formally the rotor of its drive shows, at 4e-6."""
    name = "xarm_description/urdf/xarm7.urdf"
    found = robots.of(prefix(list(FILES).index(name), name), ("armature",))
    assert found.rank == 49
    assert found.weakest < 1e-5
    assert np.sum(found.singular_values > 1e-3 * found.singular_values[0]) == 48


@pytest.mark.spec("ID-02")
def test_two_fingers_have_four_parameters_each(robots):
    assert robots.of(prefix(0, next(iter(FILES)))).rank == 51


@pytest.mark.spec("ID-02", "ID-15")
@pytest.mark.parametrize("name", FLOATING)
def test_a_floating_robot_shows_all_on_its_base(robots, name):
    start = prefix(len(FILES) + list(FLOATING).index(name), name)
    base = robots.of(start, rows=6)
    assert robots.of(start).rank == base.rank == FLOATING[name]
    # What a fit of the base's wrench alone finds explains all forces.
    freedoms, columns = robots.block(start)
    y = robots.matrix[:, freedoms][..., columns]
    values = np.random.default_rng(0).normal(size=len(columns))
    wrench = identify.compress(y[:, :6][..., base.base], y[:, :6] @ values)
    found = identify.least_squares(wrench).values
    np.testing.assert_allclose(y[..., base.base] @ found, y @ values, atol=1e-8 * np.abs(y @ values).max())
    whole = identify.least_squares(identify.compress(y[..., base.base], y @ values)).values
    np.testing.assert_allclose(found, whole, atol=1e-8 * np.abs(whole).max())


@pytest.mark.slow
@pytest.mark.spec("ID-02", "ID-04")
@pytest.mark.parametrize("name", LARGE)
def test_counts_of_large_robots(name):
    model = dx.load(level([(name, "free")]))
    assert identify.identifiability(model).rank == LARGE[name]
    assert identify.structural_identifiability(model).rank == LARGE[name]


@pytest.mark.spec("ID-02")
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("Puma 560", SIX),
        ("Stanford", (33,)),
        ("SCARA", (8,)),
        ("slanted", (3 + 7 * 4,)),
        ("vertical", (1 + 7 * 4,)),
        ("upright", (12,)),
        ("pair", (6, 7, 10, 11, 13)),
        ("level", (3 * 4 - 2,)),
        ("body", (10,)),
        ("turning", (10 + 7 * 3,)),
        ("sliding", (10 + 4 * 3,)),
        ("ball", (19,)),
    ],
)
def test_counts_of_built_robots(built, name, counts):
    found = [built.of(f"{name}/", extra) for extra, _ in zip(EXTRAS, counts, strict=False)]
    assert tuple(f.rank for f in found) == counts
    assert min(f.gap for f in found) > 1e12


def agree(sampled: Sampled, terms: tuple[identify.Term, ...]) -> None:
    """What is unseen by structure is so in every sample, and there is no more of it."""
    found = identify.structural_identifiability(sampled.model, terms=terms)
    columns = [sampled.names.index(name) for name in found.names]
    y = sampled.matrix.reshape(-1, len(sampled.names))[:, columns]
    assert np.abs(y @ found.null_space).max() < 1e-9 * np.abs(y).max()
    assert found.gap > 1e6
    for tree in {name.partition("/")[0] for name in sampled.model.body_names}:
        extra = terms[1:]
        own = {name for k, name in enumerate(sampled.names) if k in sampled.block(f"{tree}/", extra)[1]}
        assert len({found.names[k] for k in found.base} & own) == sampled.of(f"{tree}/", extra).rank, tree


@pytest.mark.spec("ID-04")
def test_structure_tells_what_samples_tell(built):
    """Of all that is built here, rotors as armatures and friction included."""
    agree(built, ("inertias", "armature", "damping", "friction_loss"))


@pytest.mark.slow
@pytest.mark.spec("ID-04")
@pytest.mark.parametrize("extra", EXTRAS[:4], ids=lambda extra: "-".join(extra) or "rigid")
def test_structure_tells_what_samples_tell_of_files(robots, extra):
    agree(robots, ("inertias", *extra))


def leg(ratio: float) -> dx.Model:
    """A leg of the MIT Cheetah's kind: three joints, each with a rotor, that of the knee beside the hip's."""
    builder, rng = dx.ModelBuilder(), np.random.default_rng(5)
    places = (("abduction", "world", (0.0, 0.05, 0.0), (1, 0, 0)), ("hip", "abduction", (0.05, 0.06, 0.0), (0, 1, 0)),
              ("knee", "hip", (0.0, 0.0, -0.2), (0, 1, 0)))  # fmt: skip
    rotors = (("world", (0.01, 0.05, 0.0)), ("abduction", (0.05, 0.03, 0.0)), ("abduction", (0.05, 0.0, 0.0)))
    for (name, parent, at, axis), (carrier, beside) in zip(places, rotors, strict=True):
        builder.body(name, parent=parent, joint=dx.Revolute(axis), placement=dx.Transform.from_translation(at),
                     inertia=trees.random_inertia(rng))  # fmt: skip
        builder.body(f"{name}_rotor", parent=carrier, joint=dx.Revolute(axis), inertia=trees.random_inertia(rng),
                     placement=dx.Transform.from_translation(beside))  # fmt: skip
        builder.gear(f"{name}_rotor_joint", f"{name}_joint", ratio=ratio)
    return builder.build()


@pytest.mark.slow
@pytest.mark.spec("ID-04")
def test_rotors_by_structure():
    """Each rotor shows, with the links, what samples show; what turns as its link does shows less."""
    joints = ["abduction_joint", "hip_joint", "knee_joint"]
    model = dx.embed(leg(10.0), independent=joints)
    found, sampled = identify.structural_identifiability(model), identify.random_regressor(model, 60)
    assert found.rank == identify.identifiability_of(sampled, found.names).rank
    assert np.abs(sampled @ found.null_space).max() < 1e-9 * np.abs(sampled).max()
    alike = identify.structural_identifiability(dx.embed(leg(1.0), independent=joints))
    assert alike.rank < found.rank
    rotors = identify.structural_identifiability(model, terms=("inertias", "armature"))
    assert rotors.rank == found.rank


def bent(q):
    return dx.Transform(jnp.eye(3), jnp.stack([q[0], q[0] ** 2, 0.0 * q[0]]))


def test_what_structure_does_not_tell_is_said():
    rod = dx.SpatialInertia.box((0.5, 0.1, 0.1), mass=1.0)
    model = dx.ModelBuilder().body("bead", joint=dx.UserJoint(bent), inertia=rod).build()
    with pytest.raises(ValueError, match="joint 'bead_joint' does not move along turns and shifts"):
        identify.structural_identifiability(model)
    with pytest.raises(ValueError, match="'stiffness' is not among those looked at here"):
        identify.structural_identifiability(model, terms=("stiffness",))


@pytest.mark.slow
def test_what_structure_does_not_tell_of_ties_is_said():
    rod = dx.SpatialInertia.box((0.5, 0.1, 0.1), mass=1.0)
    builder = dx.ModelBuilder().body("a", joint=dx.Revolute(Y), inertia=rod)
    model = builder.body("b", parent="a", joint=dx.Revolute(Y), inertia=rod).gear("b_joint", "a_joint").build()
    with pytest.raises(ValueError, match="joints of a, b move together"):
        identify.structural_identifiability(dx.embed(model))
    bars = four_bar((5.0, 12.0, 11.0, 10.0))
    with pytest.raises(ValueError, match="has loops"):
        identify.structural_identifiability(dx.embed(bars.model, bars.q, independent=["crank_joint"]))


@pytest.mark.spec("ID-02")
def test_at_rest_two_parameters_of_each_axis_are_seen(built):
    model, zero = built.model, jnp.zeros(built.model.nv)
    q = jax.vmap(lambda key: dx.random_configuration(model, key))(jax.random.split(jax.random.key(0), 60))
    still = jax.vmap(lambda q: identify.regressor(model, q, zero, zero))(q)
    freedoms, columns = columns_of(model, identify.parameter_names(model), "slanted/")
    found = identify.identifiability_of(np.asarray(still)[:, freedoms][..., columns], [str(k) for k in columns])
    assert found.rank == 2 * 5


@pytest.mark.spec("ID-02")
def test_float32_does_not_guess(built):
    """Where rounding fills the gap, there is no rank; where the digits do, it is the right one."""
    freedoms, columns = columns_of(built.model, built.names, "slanted/")
    block, names = built.matrix[:, freedoms][..., columns], [built.names[k] for k in columns]
    plain, single = (identify.identifiability_of(block.astype(x), names) for x in (np.float64, np.float32))
    assert single.rank == plain.rank
    assert single.gap < 1e-4 * plain.gap
    rng = np.random.default_rng(0)
    noisy = (block + 1e-3 * rng.normal(size=block.shape)).astype(np.float32)
    with pytest.raises(ValueError, match="where the rank ends is not decided"):
        identify.identifiability_of(noisy, names)


@pytest.mark.spec("ID-03")
def test_base_parameters_give_the_same_forces(built, rng):
    """In three bases; and what forces do not feel changes none."""
    freedoms, columns = columns_of(built.model, built.names, "Puma 560/")
    block, names = built.matrix[:, freedoms][..., columns], [built.names[k] for k in columns]
    rows = block.reshape(-1, len(columns))
    values = rng.normal(size=len(columns))
    tau = rows @ values
    bases = set()
    for keep in ((), [n for n in names if n.startswith("m ")], names[::-1]):
        found = identify.identifiability_of(block, names, keep=keep)
        bases.add(found.base)
        np.testing.assert_allclose(rows[:, found.base] @ (found.regrouping @ values), tau, atol=1e-10 * abs(tau).max())
        moved = found.null_space @ rng.normal(size=len(names) - found.rank)
        assert np.abs(rows @ moved).max() < 1e-9 * abs(tau).max()
        assert found.rank == 52 + 6
    assert len(bases) == 3


@pytest.mark.spec("ID-03")
def test_what_a_pendulum_shows_in_words():
    """One link of a pendulum shows its first moment across the axis and its inertia about it; masses never."""
    builder = dx.ModelBuilder()
    add_chain(builder, "rod", [dx.Revolute(Y)] * 2, reach=links(2))
    found = identify.identifiability(builder.build(), keep=("Iyy of rod/0", "mx of rod/0"))
    assert found.combinations == (
        "mx of rod/0 + 0.5 m of rod/1",
        "mz of rod/0",
        "Iyy of rod/0 + 0.25 m of rod/1",
        "mx of rod/1",
        "mz of rod/1",
        "Iyy of rod/1",
    )
    kinds = dict(zip(found.names, found.kinds, strict=True))
    assert kinds["mz of rod/0"] == "identifiable"
    assert kinds["m of rod/1"] == "in combination"
    assert kinds["m of rod/0"] == kinds["my of rod/1"] == "invisible"
    assert "rank 6 of 20 parameters" in str(found)


def test_what_is_wrong_is_said():
    model = dx.ModelBuilder().body("rod", joint=dx.Revolute(Y), inertia=dx.SpatialInertia(1.0)).build()
    names = identify.parameter_names(model)
    with pytest.raises(ValueError, match="no 'friction'; choose from inertias, armature"):
        identify.regressor(model, [0.0], [0.0], [0.0], terms=("friction",))
    with pytest.raises(ValueError, match="`keep`: there is no parameter 'mass'"):
        identify.identifiability_of(np.ones((20, 10)), names, keep=("mass",))
    with pytest.raises(ValueError, match="5 rows for 10 columns"):
        identify.identifiability_of(np.ones((5, 10)), names)
    with pytest.raises(ValueError, match="column of 'mx of rod' is not finite"):
        identify.identifiability_of(np.where(np.arange(10) == 1, np.nan, np.ones((20, 10))), names)
    with pytest.raises(ValueError, match="0 free bases"):
        identify.base_wrench_regressor(model, [0.0], [0.0], [0.0])
    with pytest.raises(ValueError, match="`values` has shape"):
        identify.with_parameter_vector(model, np.zeros(4))

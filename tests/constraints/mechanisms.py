"""Closed mechanisms: builders, each with a configuration near an assembled one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import trees

import dynax as dx

X, Y, Z = np.eye(3)
HINGE = dx.Revolute(Z)


class Mechanism(NamedTuple):
    model: dx.Model
    q: np.ndarray
    """Near an assembled configuration."""
    mobility: int


def at(x: float = 0.0, y: float = 0.0, z: float = 0.0) -> dx.Transform:
    return dx.Transform.from_translation((x, y, z))


def rod(length: float, mass: float = 1.0, along=X, thickness: float = 0.1) -> dx.SpatialInertia:
    """A box of square section from the origin on."""
    along = np.asarray(along, dtype=float)
    section, across = thickness**2 / 6, (length**2 + thickness**2) / 12
    return dx.SpatialInertia(
        mass, 0.5 * length * along, mass * (across * np.eye(3) + (section - across) * np.outer(along, along))
    )


def plate(mass: float, x: float, y: float, izz: float) -> dx.SpatialInertia:
    """A flat body in the plane across z."""
    return dx.SpatialInertia(mass, (x, y, 0.0), (0.5 * izz, 0.5 * izz, izz))


# Linkages -------------------------------------------------------------------------------------------------------------


def four_bar_angles(lengths, crank: float, open_branch: bool = True) -> tuple[float, float]:
    """Angles of coupler and rocker from the ground's direction, by the law of cosines."""
    a, b, c, g = lengths
    tip = a * np.exp(1j * crank)
    reach = g - tip
    lift = np.arccos((abs(reach) ** 2 + b**2 - c**2) / (2 * abs(reach) * b))
    coupler = np.angle(reach) + (lift if open_branch else -lift)
    return coupler, np.angle(tip + b * np.exp(1j * coupler) - g)


def four_bar(
    lengths=(5.0, 12.0, 12.0, 10.0), *, cut: str = "internal", joint=HINGE, crank=np.pi / 3, ground=0.0, name="four-bar"
) -> Mechanism:
    """Crank, coupler, rocker and ground, cut between rocker and ground (`terminal`) or coupler and rocker.

    `ground` is the direction of the fixed link. Coordinates are the angles between neighbours.
    """
    a, b, c, g = lengths
    third, fourth = four_bar_angles(lengths, crank)
    turned = dx.Transform(np.asarray(dx.Rotation.from_axis_angle(Z, ground).matrix), np.zeros(3))
    builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0), name=name)
    builder.body("crank", joint=HINGE, placement=turned, inertia=rod(a))
    builder.body("coupler", parent="crank", joint=HINGE, placement=at(a), inertia=rod(b, 1.5))
    if cut == "terminal":
        builder.body("rocker", parent="coupler", joint=HINGE, placement=at(b), inertia=rod(c, 0.7, -X))
        builder.loop(
            "close",
            successor="rocker",
            joint=joint,
            predecessor_placement=turned @ at(g),
            successor_placement=at(-c),
        )
        q = [crank, third - crank, fourth - third]
    else:
        builder.body("rocker", joint=HINGE, placement=turned @ at(g), inertia=rod(c, 0.7))
        builder.loop(
            "close",
            predecessor="coupler",
            successor="rocker",
            joint=joint,
            predecessor_placement=at(b),
            successor_placement=at(c),
        )
        q = [crank, third - crank, fourth]
    return Mechanism(builder.build(), np.array(q), 1)


def n_four_bar(loops: int = 2) -> Mechanism:
    """Rods of 1 m and 1 kg: `loops` squares in a row, upright; at the horizontal the mobility jumps to `loops + 1`."""
    builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0), name="n-four-bar")
    for k in range(loops + 1):
        builder.body(f"upright{k}", joint=HINGE, placement=at(float(k)), inertia=rod(1.0, along=Y, thickness=0.0))
    for k in range(loops):
        builder.body(
            f"beam{k}", parent=f"upright{k}", joint=HINGE, placement=at(0.0, 1.0), inertia=rod(1.0, thickness=0.0)
        )
        builder.loop(
            f"close{k}",
            predecessor=f"beam{k}",
            successor=f"upright{k + 1}",
            joint=HINGE,
            predecessor_placement=at(1.0),
            successor_placement=at(0.0, 1.0),
        )
    return Mechanism(builder.build(), np.zeros(2 * loops + 1), 1)


def four_bar_chain(links: int) -> Mechanism:
    """Parallelograms in a row, each on the coupler of the one before."""
    builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0), name=f"chain of {links}")
    carrier, q = "world", []
    for k in range(links):
        foot = at(0.0 if k == 0 else 0.1)
        builder.body(f"crank{k}", parent=carrier, joint=HINGE, placement=foot, inertia=rod(0.5, along=Y))
        builder.body(f"beam{k}", parent=f"crank{k}", joint=HINGE, placement=at(0.0, 0.5), inertia=rod(0.3))
        builder.body(f"rocker{k}", parent=carrier, joint=HINGE, placement=foot @ at(0.3), inertia=rod(0.5, along=Y))
        builder.loop(
            f"close{k}",
            predecessor=f"beam{k}",
            successor=f"rocker{k}",
            joint=HINGE,
            predecessor_placement=at(0.3),
            successor_placement=at(0.0, 0.5),
        )
        angle = 0.5 * np.cos(1.3 * k)
        carrier, q = f"beam{k}", [*q, angle, -angle, angle]
    return Mechanism(builder.build(), np.array(q), links)


def slider_crank(crank=0.15, rod_length=0.3) -> Mechanism:
    builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0), name="slider-crank")
    builder.body("crank", joint=HINGE, inertia=rod(crank, 0.36))
    builder.body("rod", parent="crank", joint=HINGE, placement=at(crank), inertia=rod(rod_length, 0.15))
    builder.body("slider", joint=dx.Prismatic(X), inertia=dx.SpatialInertia(0.07))
    builder.loop("close", predecessor="rod", successor="slider", joint=HINGE, predecessor_placement=at(rod_length))
    angle = 0.8
    lean = -np.arcsin(crank * np.sin(angle) / rod_length)
    reach = crank * np.cos(angle) + rod_length * np.cos(lean)
    return Mechanism(builder.build(), np.array([angle, lean - angle, reach]), 1)


class Squeezer(NamedTuple):
    """Andrews' mechanism in the numbers of the test set for initial value problems."""

    model: dx.Model
    q: np.ndarray
    order: np.ndarray
    """Where `(beta, Theta, gamma, Phi, delta, Omega, epsilon)` stand in `q`."""
    torque: float
    spring: tuple[float, float]
    """Stiffness and rest length, from `fixed` to `moving` on the third body, whose angle is gamma."""
    fixed: np.ndarray
    moving: np.ndarray
    pivot: np.ndarray


def andrews() -> Squeezer:
    mass = (0.04325, 0.00365, 0.02373, 0.00706, 0.0705, 0.00706, 0.05498)
    izz = (2.194e-6, 4.41e-7, 5.255e-6, 5.667e-7, 1.169e-5, 5.667e-7, 1.912e-5)
    a, b, c = (np.array(p) for p in ((-0.06934, -0.00227), (-0.03635, 0.03273), (0.014, 0.072)))
    # fmt: off
    d, da, e, ea, rr, ra, ss, sa, sb, sc, sd = (
        0.028, 0.0115, 0.02, 0.01421, 0.007, 0.00092, 0.035, 0.01874, 0.01043, 0.018, 0.02,
    )
    ta, tb, u, ua, ub, zf, zt, fa = 0.02308, 0.00916, 0.04, 0.01228, 0.00449, 0.02, 0.04, 0.01421
    bodies = (
        ("k1", "world", (0.0, 0.0), (ra, 0.0)),
        ("k2", "k1", (rr, 0.0), (-da, 0.0)),
        ("k3", "world", b, (sa, sb)),
        ("k5", "world", a, (ta, tb)),
        ("k4", "k5", (zt, 0.0), (0.0, ea - e)),
        ("k7", "world", a, (ua, ub)),
        ("k6", "k7", (0.0, -u), (zf - fa, 0.0)),
    )
    # fmt: on
    builder = dx.ModelBuilder(gravity=(0.0, 0.0, 0.0), name="andrews")
    for name, parent, pivot, com in bodies:
        k = int(name[1]) - 1
        builder.body(name, parent=parent, joint=HINGE, placement=at(*pivot), inertia=plate(mass[k], *com, izz[k]))
    for name, end in (("k3", (0.0, -ss)), ("k4", (0.0, -e)), ("k6", (zf, 0.0))):
        builder.loop(
            name,
            predecessor="k2",
            successor=name,
            joint=HINGE,
            predecessor_placement=at(-d),
            successor_placement=at(*end),
        )
    phi, omega = 0.222668390165886, -0.222668390165886
    start = (-0.0617138900142764, 0.0, 0.45527981916307, phi, 0.487364979543843, omega, 1.23054744454982)
    order = np.array([0, 1, 2, 4, 3, 6, 5])
    q = np.zeros(7)
    q[order] = start
    return Squeezer(builder.build(), q, order, 0.033, (4530.0, 0.07785), c, np.array([sd, -sc]), b)


def bricard() -> Mechanism:
    """Five boxes of 1 m and 1 kg and the ground in a ring of six hinges: mobility one by symmetry alone."""
    points = np.array([(0, 0, 0), (1, 0, 0), (1, -1, 0), (1, -1, 1), (0, -1, 1), (0, 0, 1)], dtype=float)
    builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0), name="bricard")
    for k, axis in enumerate((Y, Z, X, Y, Z)):
        step = points[k] - points[k - 1] if k else points[0]
        builder.body(
            f"rod{k}",
            parent=f"rod{k - 1}" if k else "world",
            joint=dx.Revolute(axis),
            placement=at(*step),
            inertia=rod(1.0, along=points[k + 1] - points[k]),
        )
    builder.frame("P3", body="rod2", placement=at(*(points[3] - points[2])))
    builder.loop(
        "close",
        successor="rod4",
        joint=dx.Revolute(X),
        predecessor_placement=at(*points[5]),
        successor_placement=at(*(points[5] - points[4])),
    )
    return Mechanism(builder.build(), np.zeros(5), 1)


def stewart_gough() -> Mechanism:
    """A platform that flies, held by six legs of a universal joint, a slide and a ball each."""
    angle = np.deg2rad([0, 60, 120, 180, 240, 300])
    below = np.stack([np.cos(angle + 0.3 * (-1.0) ** np.arange(6)), np.sin(angle + 0.3 * (-1.0) ** np.arange(6))], 1)
    above = 0.6 * np.stack(
        [np.cos(angle + 0.2 * (-1.0) ** np.arange(1, 7)), np.sin(angle + 0.2 * (-1.0) ** np.arange(1, 7))], 1
    )
    builder = dx.ModelBuilder(name="stewart-gough")
    builder.body("platform", joint=dx.Free(), inertia=dx.SpatialInertia(5.0, (0, 0, 0.05), (0.4, 0.5, 0.8)))
    q = [0.0, 0.0, 1.2, 1.0, 0.0, 0.0, 0.0]
    for k, (foot, head) in enumerate(zip(below, above, strict=True)):
        builder.body(f"shank{k}", joint=dx.Universal(X, Y), placement=at(*foot), inertia=rod(0.5, 0.4, Z))
        builder.body(f"stem{k}", parent=f"shank{k}", joint=dx.Prismatic(Z), inertia=rod(0.5, 0.3, -Z))
        builder.loop(
            f"ball{k}",
            predecessor=f"stem{k}",
            successor="platform",
            joint=dx.Spherical(),
            successor_placement=at(*head),
        )
        to = np.array([*(head - foot), 1.2])
        length = np.linalg.norm(to)
        # Rx(a) Ry(b) z = (sin b, -sin a cos b, cos a cos b)
        q += [np.arctan2(-to[1], to[2]), np.arcsin(to[0] / length), length]
    return Mechanism(builder.build(), np.array(q), 6)


def wishbone() -> Mechanism:
    """A double wishbone: two arms, an upright on balls, and a track rod as a distance."""
    builder = dx.ModelBuilder(name="wishbone")
    builder.body("lower", joint=dx.Revolute(X), inertia=rod(0.4, 2.0, Y))
    builder.body("upright", parent="lower", joint=dx.Spherical(), placement=at(0, 0.4), inertia=rod(0.25, 9.0, Z))
    builder.body("upper", joint=dx.Revolute(X + 0.1 * Y), placement=at(0, 0.05, 0.25), inertia=rod(0.3, 1.5, Y))
    builder.loop(
        "ball",
        predecessor="upper",
        successor="upright",
        joint=dx.Spherical(),
        predecessor_placement=at(0, 0.35),
        successor_placement=at(0, 0, 0.25),
    )
    builder.loop(
        "rod",
        successor="upright",
        joint=dx.Distance(0.38),
        predecessor_placement=at(-0.1, 0.02, 0.1),
        successor_placement=at(-0.1, 0, 0.1),
    )
    return Mechanism(builder.build(), np.array([0.05, 1.0, 0.0, 0.0, 0.0, 0.05]), 1)


def ladder(rungs: int, rng=None) -> dx.Model:
    """Two rails of rods on balls, hinged to one another by rungs: a loop for each rung but the first.

    Bodies count 0, 1 up the left and the right rail. Each rung after the first closes a loop without repeating
    conditions: three at each ball, five at each hinge, twelve freedoms for a pair of rods.
    """
    rng = np.random.default_rng(0) if rng is None else rng
    builder = dx.ModelBuilder(gravity=(0.3, -9.0, 1.0), name=f"ladder of {rungs}")

    def inertia():
        return trees.random_inertia(rng)

    builder.body("0", joint=dx.Revolute((0, 0, 1)), inertia=inertia(), armature=0.1)
    builder.body("1", parent="0", joint=dx.Revolute((0.3, 0.2, 1)), placement=at(1.0), inertia=inertia())
    for k in range(2, 2 * rungs):
        builder.body(str(k), parent=str(k - 2), joint=dx.Spherical(), placement=at(0, 1.0), inertia=inertia())
    for k in range(2, 2 * rungs, 2):
        # Of different directions, or conditions would repeat each other here.
        hinge = dx.Revolute((1.0, 0.2 * k, 0.5 - 0.3 * k))
        builder.loop(f"rung {k}", predecessor=str(k), successor=str(k + 1), joint=hinge, predecessor_placement=at(1.0))
    return builder.build()


# Gears ----------------------------------------------------------------------------------------------------------------


def tumbling(builder: dx.ModelBuilder, moving: bool) -> tuple[str, list[float]]:
    """What carries a mechanism, and its coordinates."""
    if not moving:
        return "world", []
    builder.body("base", joint=dx.Free(), inertia=dx.SpatialInertia(3.0, (0.1, 0, 0.05), (0.2, 0.3, 0.25)))
    turn = np.array([0.8, 0.3, -0.4, 0.2])
    return "base", [0.1, -0.2, 0.3, *(turn / np.linalg.norm(turn))]


def geared_chain(links: int = 3, *, moving: bool = False, ratio: float = 7.0) -> Mechanism:
    """Links with a motor each, which sits on the link before and turns `ratio` times as fast about the same axis."""
    builder = dx.ModelBuilder(name="geared")
    carrier, q = tumbling(builder, moving)
    for k in range(links):
        axis = (Z, Y)[k % 2]
        place = at(0.4 if k else 0.0)
        moments = 1e-3 * (np.eye(3) + 3.0 * np.outer(axis, axis))
        builder.body(
            f"motor{k}",
            parent=carrier,
            joint=dx.Revolute(axis),
            placement=place,
            inertia=dx.SpatialInertia(0.3, (0, 0, 0), moments),
        )
        builder.body(f"link{k}", parent=carrier, joint=dx.Revolute(axis), placement=place, inertia=rod(0.4, 1.2))
        builder.gear(f"motor{k}_joint", f"link{k}_joint", ratio=ratio)
        angle = 0.4 - 0.3 * k
        carrier, q = f"link{k}", [*q, ratio * angle, angle]
    return Mechanism(builder.build(), np.array(q), links + 6 * moving)


def bevel_differential(*, moving: bool = True) -> Mechanism:
    """A ring, a bevel wheel on it, and two shafts: `left = ring - wheel`, `right = ring + wheel`."""
    builder = dx.ModelBuilder(name="differential")
    carrier, q = tumbling(builder, moving)
    wheel = dx.SpatialInertia(0.2, (0.0, 0.0, 0.0), (2e-3, 1e-3, 1e-3))
    builder.body(
        "ring",
        parent=carrier,
        joint=dx.Revolute(Y),
        inertia=dx.SpatialInertia(0.5, (0.01, 0, 0.02), (4e-3, 6e-3, 4e-3)),
    )
    builder.body("wheel", parent="ring", joint=dx.Revolute(X), placement=at(0.1), inertia=wheel)
    for name, side in (("left", -0.1), ("right", 0.1)):
        builder.body(name, parent=carrier, joint=dx.Revolute(Y), placement=at(0.0, side), inertia=rod(0.3, 0.8))
        builder.gear(f"{name}_joint", ("ring_joint", "wheel_joint"), ratio=(1.0, np.sign(side)))
    return Mechanism(builder.build(), np.array([*q, 0.3, 0.5, -0.2, 0.8]), 2 + 6 * moving)


# Robots ---------------------------------------------------------------------------------------------------------------


def add_leg(builder: dx.ModelBuilder, carrier: str, name: str, placement=None, axis=Z) -> list[float]:
    """A planar leg linkage: thigh, driver, support and foot, a parallelogram of 96 by 31 mm on the thigh."""
    hinge = dx.Revolute(axis)

    def link(part: str, parent: str, offset, mass: float, com: float, izz: float) -> None:
        place = placement if offset is None else at(offset)
        flat = plate(mass, com, 0.0, izz)
        builder.body(f"{name}{part}", parent=parent, joint=hinge, placement=place, inertia=flat)

    link("thigh", carrier, None, 0.23, 0.0364, 45.389e-6)
    link("driver", f"{name}thigh", 0.011, 0.004, 0.048, 3.257e-6)
    link("support", f"{name}thigh", 0.042, 0.225, 0.04, 22.918e-6)
    link("foot", f"{name}driver", 0.096, 0.017, 0.0635, 22.176e-6)
    builder.loop(
        f"{name}close",
        predecessor=f"{name}support",
        successor=f"{name}foot",
        joint=hinge,
        predecessor_placement=at(0.096),
        successor_placement=at(0.031),
    )
    return [0.3, -1.1, -1.1, 1.1]


def leg_linkage() -> Mechanism:
    builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0), name="leg")
    q = add_leg(builder, "world", "")
    return Mechanism(builder.build(), np.array(q), 2)


def legged_robot(legs: int = 8) -> Mechanism:
    """A trunk that floats, on legs with a loop each: 4 bodies and 2 freedoms a leg."""
    builder = dx.ModelBuilder(gravity=(0.0, -9.81, 0.0), name=f"robot of {legs} legs")
    builder.body("trunk", joint=dx.Free(), inertia=dx.SpatialInertia(8.0, (0.02, 0, 0.01), (0.2, 0.3, 0.25)))
    q = [0.1, 0.4, -0.2, 0.9, 0.1, -0.3, 0.2]
    for k in range(legs):
        side, row = (-1.0) ** k, k // 2
        q += add_leg(builder, "trunk", f"leg{k}_", at(0.2 * row - 0.3, 0.0, 0.15 * side))
    q[3:7] = np.asarray(q[3:7]) / np.linalg.norm(q[3:7])
    return Mechanism(builder.build(), np.array(q), 6 + 2 * legs)

"""Trees with bodies that bend, and their nodes as particles: what the recursions are compared with."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx

NODES = 5
TUBE = dx.BeamSection.tube(0.03, 0.002, E=70e9, density=2700.0)
RIGID = dx.SpatialInertia(1.3, (0.1, 0.05, -0.2), (0.2, 0.3, 0.25))


def at(*xyz: float) -> dx.Transform:
    return dx.Transform.from_translation(xyz)


def nodal_data(rng, modes: int, scale: float = 0.3) -> dict:
    """Particles whose first node, where the body is held, moves and turns too."""
    return {
        "position": rng.normal(size=(NODES, 3)),
        "mass": rng.uniform(0.5, 1.5, NODES),
        "translation": scale * rng.normal(size=(NODES, 3, modes)),
        "rotation": scale * rng.normal(size=(NODES, 3, modes)),
        "stiffness": np.diag(rng.uniform(5.0, 6.0, modes)),
        "damping": 0.1 * np.eye(modes),
    }


def body_of(data: dict) -> dx.FlexibleBody:
    return dx.flexible_body_from_nodes(**data, nodes={"root": 0, "side": 1, "tip": 2})


def arm(first: dict, second: dict) -> dx.FlexibleModel:
    """Hub, a body of three modes, a rigid one on its tip, and a body of two modes welded to its side."""
    builder = dx.ModelBuilder(gravity=(0.3, -0.2, -9.0))
    builder.body("hub", joint=dx.Revolute((0, 1, 0)), inertia=RIGID, armature=0.1)
    builder.body("panel", parent="hub", joint=dx.Universal((1, 0, 0), (0, 1, 0)), placement=at(0.2, 0.1, 0.3),
                 inertia=body_of(first), damping=0.2, stiffness=3.0)  # fmt: skip
    builder.body("camera", parent="panel/tip", joint=dx.Prismatic((0, 0, 1)), placement=at(0.1, 0.1, 0.3),
                 inertia=RIGID)  # fmt: skip
    builder.body("boom", parent="panel/side", placement=at(0.1, 0.1, 0.3), inertia=body_of(second))
    return cast(dx.FlexibleModel, builder.build())


def floating(first: dict, second: dict, gravity=(0.0, 0.0, 0.0)) -> dx.FlexibleModel:
    """A bus that bends and floats, a rigid wheel and a boom that bends on a ball joint, with a rigid tip."""
    builder = dx.ModelBuilder(gravity=gravity)
    builder.body("bus", joint=dx.Free(), placement=at(0.2, 0.1, 0.3), inertia=body_of(first))
    builder.body("wheel", parent="bus/tip", joint=dx.Revolute((0, 0, 1)), placement=at(0.1, 0.1, 0.3), inertia=RIGID)
    builder.body("boom", parent="bus/side", joint=dx.Spherical(), placement=at(0.1, 0.1, 0.3), inertia=body_of(second))
    builder.body("end", parent="boom/tip", placement=at(0.0, 0.2, 0.0), inertia=RIGID)
    return cast(dx.FlexibleModel, builder.build())


def bus_with_panels() -> dx.FlexibleModel:
    """A rigid bus that floats, with two panels on hinges."""
    panel = dx.flexible_beam(TUBE, 4.0, modes=3, held={"base": "123456"})
    builder = dx.ModelBuilder(gravity=(0, 0, 0))
    builder.body("bus", joint=dx.Free(), inertia=dx.SpatialInertia(200.0, (0, 0, 0), (30.0, 30.0, 30.0)))
    for side, name in ((1.0, "left"), (-1.0, "right")):
        turned = dx.Transform(np.diag([side, side, 1.0]), np.array([side, 0.0, 0.0]))
        builder.body(name, parent="bus", joint=dx.Revolute((1, 0, 0)), placement=turned, inertia=panel)
    return cast(dx.FlexibleModel, builder.build())


def chain(bodies: int, modes: int, level: Any = None) -> Any:
    """Clamped beams on hinges, one on the tip of the other."""
    elements = dx.beam_elements(TUBE, 1.0, elements=max(3, -(-modes // 3)))
    body = elements.body(elements.modes(modes, held={"base": "123456"}), level=level)
    builder, parent = dx.ModelBuilder(gravity=(0, 0, 0)), {}
    for k in range(bodies):
        axis = (0, 0, 1) if k % 2 else (0, 1, 0)
        builder.body(f"b{k}", joint=dx.Revolute(axis), inertia=body, **parent)
        parent = {"parent": f"b{k}/tip"}
    return builder.build()


def random_state(model, rng):
    """Deformed and moving: `q, v`, and two vectors more."""
    q = dx.integrate(model, dx.neutral(model), 0.3 * rng.normal(size=model.nv))
    return q, *rng.normal(size=(3, model.nv))


def hat(a):
    zero = 0.0 * a[0]
    return jnp.array([[zero, -a[2], a[1]], [a[2], zero, -a[0]], [-a[1], a[0], zero]])


def turned(angle):
    """The rotation by a rotation vector, by its power series, which has derivatives everywhere."""
    spin, power = hat(angle), jnp.eye(3)
    total = power
    for k in range(1, 20):
        power = power @ spin
        total = total + power / math.factorial(k)
    return total


def compose(a, b):
    return a[0] @ b[0], a[1] + a[0] @ b[1]


def node(data: dict, k: int, eta):
    return turned(data["rotation"][k] @ eta), data["position"][k] + data["translation"][k] @ eta


def frame_of(held, data: dict, eta):
    """The body's frame, from the pose of its first node."""
    rotation, place = node(data, 0, eta)
    return compose(held, (rotation.T, -rotation.T @ place))


def corners(inertia: dx.SpatialInertia):
    """Six particles with the inertia of a rigid body about its centre of mass."""
    moments, axes = np.linalg.eigh(inertia.inertia)
    squares = (0.5 * moments.sum() - moments) / inertia.mass * 3.0
    arms = np.concatenate([np.sqrt(squares) * axes, -np.sqrt(squares) * axes], axis=1).T
    return inertia.mass / 6.0, np.asarray(inertia.com) + arms


def particles(first: dict, second: dict, q):
    """Of `arm`: masses and places of all, for `q = [hub, panel (2), modes (3), camera, modes (2)]`."""
    eta, bent = q[3:6], q[7:9]
    rest = jnp.eye(3)
    hub = turned(jnp.array([0.0, 1.0, 0.0]) * q[0]), jnp.zeros(3)
    root = compose(hub, (rest, jnp.array([0.2, 0.1, 0.3])))
    root = compose(
        root, (turned(jnp.array([1.0, 0.0, 0.0]) * q[1]) @ turned(jnp.array([0.0, 1.0, 0.0]) * q[2]), jnp.zeros(3))
    )
    panel = frame_of(root, first, eta)
    camera = compose(
        compose(panel, node(first, 2, eta)), (rest, jnp.array([0.1, 0.1, 0.3]) + jnp.array([0, 0, 1]) * q[6])
    )
    boom = frame_of(compose(compose(panel, node(first, 1, eta)), (rest, jnp.array([0.1, 0.1, 0.3]))), second, bent)
    own, shape = corners(RIGID)
    masses, places = [np.full(6, own)] * 2, [shape @ frame[0].T + frame[1] for frame in (hub, camera)]
    for frame, data, modes in ((panel, first, eta), (boom, second, bent)):
        moved = jnp.stack([node(data, k, modes)[1] for k in range(NODES)])
        masses.append(data["mass"])
        places.append(moved @ frame[0].T + frame[1])
    return np.concatenate(masses), jnp.concatenate(places)


@partial(jax.jit, static_argnums=0)
def by_particles(system, q, v, a):
    """`M` and `tau` of d'Alembert: `sum of m J^T (J a + Jdot v - g)`, springs and dampers."""
    first, second = system.data

    def places(q):
        return particles(first, second, q)[1]

    masses, _ = particles(first, second, np.zeros(9))
    jacobian = jax.jacfwd(places)(q)
    bias = jax.jvp(lambda q: jax.jvp(places, (q,), (v,))[1], (q,), (v,))[1]
    mass = jnp.einsum("n,nir,nis->rs", masses, jacobian, jacobian).at[0, 0].add(0.1)
    pull = jnp.einsum("n,nir,ni->r", masses, jacobian, bias - jnp.array([0.3, -0.2, -9.0]))
    springs = jnp.zeros((9, 9)).at[1:3, 1:3].set(3.0 * np.eye(2))
    dampers = jnp.zeros((9, 9)).at[1:3, 1:3].set(0.2 * np.eye(2))
    for rows, data in ((slice(3, 6), first), (slice(7, 9), second)):
        springs, dampers = springs.at[rows, rows].set(data["stiffness"]), dampers.at[rows, rows].set(data["damping"])
    return mass, mass @ a + pull + springs @ q + dampers @ v


class System:
    """`arm` and its data, hashed by identity."""

    def __init__(self, rng):
        self.data = nodal_data(rng, 3), nodal_data(rng, 2)
        self.model = arm(*self.data)

"""The candidates of a scene: where they are, and how fast they come nearer.

A candidate is a point on two bodies with a normal from `a` to `b` (chapter 11.3):

    zeta = n . (v_b - v_a) = t . v        t = d gap / dq        force f on b, -f on a, at the point
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dynax.algorithms.frames import body_velocities
from dynax.compile.batching import samplewise, trailing
from dynax.compile.fence import apart, computed
from dynax.contact.material import Material, growing_pairs, instead, of_pairs
from dynax.contact.placing import Placed, placed
from dynax.contact.scene import Scene, Side, sides_of
from dynax.contact.shapes import Sphere
from dynax.contact.touch import Candidates, Posed, candidates
from dynax.embedding.meanings import rigid_motion
from dynax.model import Model
from dynax.model.checks import as_state
from dynax.spatial import Transform, Vec3
from dynax.sweep import take_rows


class Touch(NamedTuple):
    """The candidates of a scene at a configuration, in the order of `scene.candidates`."""

    gap: jax.Array
    """Shape `(k,)` [m], negative where shapes overlap."""
    point: jax.Array
    """In the world, shape `(k, 3)` [m]."""
    normal: jax.Array
    """In world axes, from the first to the second of the pair, shape `(k, 3)`."""


def contacts(scene: Scene, q: Any) -> Touch:
    """Where the shapes of a scene may touch at `q`, shape `(nq,)`, and how far they are apart there."""
    (q,) = as_state(scene.model, q=q)
    return contacts_at(scene, placed(scene, q))


def contacts_at(scene: Scene, at: Placed) -> Touch:
    return contacts_and_ends(scene, at, None)[0]


def contacts_and_ends(scene: Scene, at: Placed, later: Transform | None) -> tuple[Touch, Touch]:
    """Where shapes touch, and where all candidates that are `asked`, in their order, would if bodies, and the world
    after them, stood as they do `later`. Pairs of the same kinds are found at once: a program of its own takes as long
    again to compile."""
    rotation, origin = at.rotation, at.origin
    if later is not None:
        rotation = jnp.concatenate([rotation, later.rotation])
        origin = jnp.concatenate([origin, later.translation])
    own, groups = len(at.rotation), []
    for group in scene.groups:
        moving = [] if later is None else [pair for pair in group if asked(scene, pair)]
        sides = []
        for side in sides_of(scene, [*group, *moving], origin.dtype):
            bodies = np.array(side.bodies, int) % own  # the world is the last
            bodies[len(group) :] += own
            sides.append(dataclasses.replace(side, bodies=tuple(map(int, bodies))))
        groups.append((len(group), tuple(sides)))
    none = Candidates(*(jnp.zeros((0, *shape), origin.dtype) for shape in ((), (3,), (3,))))
    rows, ends = [none], [none]
    for found, (count, _) in zip(_of_sides([sides for _, sides in groups], rotation, origin), groups, strict=True):
        for every, part in ((rows, slice(count)), (ends, slice(count, None))):
            every.append(Candidates(*(x[part].reshape(-1, *x.shape[2:]) for x in found)))
    touch, end = (Touch(*jax.tree.map(lambda *x: jnp.concatenate(x), *every)) for every in (rows, ends))
    return touch, end


@samplewise(axes=3)
def _of_sides(groups: list[tuple[Side, Side]], rotation: jax.Array, origin: jax.Array) -> list[Candidates]:
    """Of each of the groups all candidates, in rows of pairs."""

    def stands(side: Side) -> Posed:
        turn, place = take_rows((rotation, origin), np.array(side.bodies, int))
        place = place + (turn @ side.placements.translation[:, :, None])[:, :, 0]
        return Posed(side.shapes, *computed((turn @ side.placements.rotation, place)))  # once, for all who ask

    return [jax.vmap(candidates)(stands(a), stands(b)) for a, b in groups]


def asked(scene: Scene, pair: tuple[int, int]) -> bool:
    """Whether it counts for two shapes how they turn within a step: where both move, and where one floats alone, which
    may spin as fast as it was hit, and is no ball. Legs and hands turn by little on what is at rest."""
    topology, (first, second) = scene.tree.topology, sorted(scene.bodies[k] for k in pair)
    if first >= 0 or second < 0 or second in topology.parents:
        return first >= 0
    own = [shape for shape, body in zip(scene.shapes, scene.bodies, strict=True) if body == second]
    floats = topology.joints[second].turning and topology.parents[second] < 0
    return bool(floats) and not (len(own) == 1 and isinstance(own[0], Sphere))


def contact_velocities(scene: Scene, touch: Touch, q: Any, v: Any) -> jax.Array:
    """Velocities of the second body relative to the first at each candidate, in world axes, shape `(k, 3)` [m/s]."""
    q, v = as_state(scene.model, q=q, v=v)
    return relative_motion(scene, touch.point, placed(scene, q), q, v)[1]


def relative_motion(
    scene: Scene, points: jax.Array, at: Placed, q: jax.Array, v: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """How the bodies of each candidate turn together, the sum of their angular velocities, and how fast the second
    moves at the point, seen from the first; in world axes, shapes `(k, 3)`."""
    motion = jnp.concatenate([body_velocities(scene.model, q, v), jnp.zeros((1, 6), q.dtype)]).reshape(-1, 2, 3)
    turning, shift = jnp.einsum("kij,kcj->cki", at.rotation, motion)
    first, second = candidate_bodies(scene)

    def of(body: np.ndarray) -> jax.Array:
        return shift[body] + jnp.cross(turning[body], points - at.origin[body])

    return turning[first] + turning[second], of(second) - of(first)


def contact_jacobian(scene: Scene, touch: Touch, q: Any) -> jax.Array:
    """`contact_velocities` by velocity, shape `(k, 3, nv)`."""
    (q,) = as_state(scene.model, q=q)
    return jacobian_at(scene, touch.point, carried(scene), q, placed(scene, q))


def carried(scene: Scene) -> np.ndarray:
    """1 for each freedom of the tree that moves the second body of a candidate alone, -1 the first, else 0; shape
    `(k, nv)`."""
    topology = scene.tree.topology
    support = np.concatenate([topology.support[:, topology.body_of_velocity], np.zeros((1, topology.nv), bool)])
    first, second = candidate_bodies(scene)
    return support[second].astype(int) - support[first].astype(int)


def jacobian_at(scene: Scene, points: jax.Array, signs: Any, q: jax.Array, at: Placed) -> jax.Array:
    """Of points `(k, 3)`, on bodies that `signs` tell, as `carried` does, shape `(k, 3, nv)`."""
    own = _moved(points, jnp.asarray(signs, q.dtype), at.turns, at.shifts, at.places)
    return by_model(scene, q, jnp.moveaxis(own, 1, 2))


def _moved(points, signs, turns, shifts, places) -> jax.Array:
    """How each freedom of the tree moves them, shape `(k, nv, 3)`."""
    return signs[:, :, None] * (shifts + jnp.cross(turns, points[:, None] - places))


def by_model(scene: Scene, q: jax.Array, rows: Any) -> Any:
    """Rates by the velocity of the tree as those by the model's."""
    if isinstance(scene.model, Model):
        return rows
    return rows @ rigid_motion(scene.model, q, jnp.zeros(scene.nv, q.dtype)).x


def frames_and_rows(scene: Scene, touch: Touch, q: jax.Array, at: Placed, signs: Any = None) -> tuple:
    """Axes of contacts, the normal last, shape `(k, 3, 3)`, and how fast they come apart along them by the velocity,
    `(k, 3, nv)`: of all candidates, or of some with their `signs`."""
    signs = jnp.asarray(carried(scene) if signs is None else signs, q.dtype)
    frames = jax.vmap(frame)(touch.normal)
    return frames, by_model(scene, q, _rows(signs, frames, touch.point, at.turns, at.shifts, at.places))


def _rows(signs: jax.Array, frames, points, turns, shifts, places) -> jax.Array:
    """`n . (shift + turn x (point - place))` of each axis of a frame and each freedom, shape `(k, 3, nv)`."""
    axes = [Vec3.from_array(frames[:, k]) for k in range(3)]
    point, turn, shift, place = map(Vec3.from_array, (points, turns, shifts, places))
    return jnp.stack(_rows_apart((), axes, point, signs, turn, shift, place), axis=1)


@trailing
def _rows_apart(_: tuple, axes: list, point: Vec3, signs, turn: Vec3, shift: Vec3, place: Vec3) -> list[jax.Array]:
    """By components, which are taken apart and put together outside.

    What moves is behind a line (`compile.fence`). Without it the transpose sums formulas over all freedoms, and of 4 or
    8 points and, say, 8 freedoms the compiler of JAX 0.10 took all memory for that one kernel.
    """
    axes, point = jax.tree.map(lambda x: x[:, None], (axes, point))
    moved = jax.tree.map(apart, (shift + turn.cross(point - place)) * signs)
    return [axis.dot(moved) for axis in axes]


def contact_wrenches(scene: Scene, touch: Touch, q: Any, forces: jax.Array) -> jax.Array:
    """Wrenches on the bodies, `(n, 6)` as `external` takes them, of forces `(k, 3)` on the second bodies [N]."""
    (q,) = as_state(scene.model, q=q)
    at = placed(scene, q)
    total = jnp.zeros((len(at.origin), 6), q.dtype)
    for body, force in zip(candidate_bodies(scene), (-forces, forces), strict=True):
        moment = jnp.cross(touch.point - at.origin[body], force)
        own = [jnp.einsum("kij,ki->kj", at.rotation[body], x) for x in (moment, force)]
        total = total.at[body].add(jnp.concatenate(own, axis=1))
    return total[:-1]


def candidate_bodies(scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    """The first and the second body of each candidate, -1 for the world."""
    pairs = np.array(scene.candidates, int).reshape(-1, 2)
    bodies = np.array((*scene.bodies, -1))
    return bodies[pairs[:, 0]], bodies[pairs[:, 1]]


def candidate_materials(scene: Scene, dtype: Any) -> Material:
    """What holds between the two of each pair, an entry for each candidate."""
    places = {pair: k for k, pair in enumerate(scene.pairs)}
    own = np.array([places[pair] for pair in scene.candidates], int)
    if not len(own):
        return Material(*(jnp.zeros(0, dtype) for _ in dataclasses.fields(Material)))
    pairs = np.array(scene.pairs, int)
    found = of_pairs(scene.materials, pairs[:, 0], pairs[:, 1], dtype)
    return jax.tree.map(lambda x: x[own], instead(found, scene.between))


def growing(scene: Scene) -> np.ndarray:
    """Which candidates have Hunt and Crossley's law, shape `(k,)`."""
    places = {pair: k for k, pair in enumerate(scene.pairs)}
    own = np.array([places[pair] for pair in scene.candidates], int)
    return growing_pairs(scene.materials, np.array(scene.pairs, int).reshape(-1, 2), scene.between)[own]


def frame(normal: jax.Array) -> jax.Array:
    """A rotation whose last row is the normal; smooth but where its z is 0 (Duff et al. 2017)."""
    x, y, z = normal
    sign = jnp.where(z < 0, -1.0, 1.0).astype(normal.dtype)
    a = -1.0 / (sign + z)
    b = x * y * a
    one = jnp.stack([1.0 + sign * x * x * a, sign * b, -sign * x])
    other = jnp.stack([b, sign + y * y * a, -y])
    return jnp.stack([one, other, normal])

"""Derivatives of dynamics: forward and reverse mode against central differences, and finite where it matters."""

from __future__ import annotations

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import routes
import trees

import dynax as dx

#: Leaves that dynamics depends on. Rotations of placements and hinges move on their own manifold.
LEAVES = ("gravity", "time", "joint_parameters", "mass", "com", "first_moment", "inertia", "armature", "damping",
          "friction_loss", "friction_velocity", "stiffness")  # fmt: skip
POSES = ("placements", "hinges")


def weights(name):
    model = trees.tree(name)
    rng = np.random.default_rng(17)
    return jnp.asarray(rng.normal(size=model.nv)), jnp.asarray(rng.normal(size=model.nv))


def shifted(model, leaves, t=1.0):
    """The model with leaves moved by `t` times a direction; poses move their points and turn by `exp`."""
    changes = {k: getattr(model, k) + t * leaves[k] for k in LEAVES}
    for k in POSES:
        pose = getattr(model, k)
        turn = jax.vmap(lambda w: dx.Rotation.exp(w).matrix)(t * leaves[k]["turn"])
        changes[k] = dx.Transform(pose.rotation @ turn, pose.translation + t * leaves[k]["move"])
    return model.replace(**changes)


def zeros(model):
    still = {k: jnp.zeros_like(getattr(model, k)) for k in LEAVES}
    n = model.num_bodies
    return still | {k: {"turn": jnp.zeros((n, 3)), "move": jnp.zeros((n, 3))} for k in POSES}


#: What is differentiated in reverse mode: programs that hold both, both ways, take minutes to compile.
REVERSE = {"mixed": ("fd", "id"), "screws": ("fd",)}


def objective(asked, name, model, point, q, a):
    """One number of forward and inverse dynamics at a point of all that varies."""
    w, u = weights(name)
    model = shifted(model, point["leaves"])
    q = dx.integrate(model, q, point["dq"])
    v, tau, external = point["v"], point["tau"], point["external"]
    total = 0.0
    if "fd" in asked:
        total = total + w @ dx.forward_dynamics(model, q, v, tau, external)
    if "id" in asked:
        total = total + u @ dx.inverse_dynamics(model, q, v, a, external)
    return total


@partial(jax.jit, static_argnums=(0, 1))
def reverse(asked, name, model, point, q, a):
    return jax.grad(objective, argnums=3)(asked, name, model, point, q, a)


@partial(jax.jit, static_argnums=(0, 1))
def forward(asked, name, model, point, tangent, q, a):
    return jax.jvp(lambda p: objective(asked, name, model, p, q, a), (point,), (tangent,))[1]


def directions(model, rng):
    """One direction for every thing that varies, by name."""
    nothing = {
        "leaves": zeros(model),
        "dq": jnp.zeros(model.nv),
        "v": jnp.zeros(model.nv),
        "tau": jnp.zeros(model.nv),
        "external": jnp.zeros((model.num_bodies, 6)),
    }
    for key in ("dq", "v", "tau", "external"):
        yield key, nothing | {key: jnp.asarray(rng.normal(size=nothing[key].shape))}
    for key in (*LEAVES, *POSES):
        own = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape)), nothing["leaves"][key])
        yield key, nothing | {"leaves": nothing["leaves"] | {key: own}}


@jax.jit
def moved(model, point, direction, q, a, t):
    """The model and four copies of the state, at `t` times a direction from a point."""
    point = jax.tree.map(lambda x, d: x + t * d, point, direction)
    model = shifted(model, point["leaves"])
    q = dx.integrate(model, q, point["dq"])
    return model, *(jnp.stack([x] * 4) for x in (q, point["v"], a, point["tau"], point["external"]))


def plain(name, *at):
    """The parts of the objective from the compiled routes."""
    w, u = weights(name)
    y = routes.dynamics(name, *moved(*at))
    return np.array([np.asarray(w) @ y["fd"][0], np.asarray(u) @ y["id"][0]])


def slope(name, model, point, direction, q, a, h=1e-4):
    """The derivatives of both parts along a direction, by central differences."""

    def at(t):
        return plain(name, model, point, direction, q, a, t)

    return dict(zip(("fd", "id"), (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h), strict=True))


def pair(x, y):
    return sum(float(jnp.sum(a * b)) for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True))


PLACES = ("anywhere", "at rest", "identity", "half a turn", "massless")


@lru_cache
def places(name):
    """Ordinary and special points: `(label, model, q, v)`."""
    model, s, _ = routes.case(name)
    neutral = dx.neutral(model)
    half = jnp.zeros(model.nv)
    for joint, start in zip(model.joints, model.topology.v_start, strict=False):
        if joint.nv:
            # Half a turn about one axis; for a ball with a spring that is where the spring's own pull jumps.
            half = half.at[int(start)].set(np.pi)
    turned = dx.integrate(model, neutral, half)
    body = model.num_bodies // 2
    massless = model.replace(**{k: getattr(model, k).at[body].set(0.0) for k in ("mass", "com", "inertia")})
    soft = model.replace(stiffness=0 * model.stiffness)
    return {
        "anywhere": (model, s.q[0], s.v[0]),
        "at rest": (model, s.q[1], 0 * s.v[1]),
        "identity": (model, neutral, 0 * s.v[0]),
        "half a turn": (soft, turned, s.v[2]),
        "massless": (massless, s.q[3], s.v[3]),
    }


@pytest.mark.spec("RBDA-X-GRAD", "RBDA-5.5-DERIV")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", [pytest.param("mixed", marks=pytest.mark.slow), "screws"])
def test_derivatives(name, place, rng):
    model, q, v = places(name)[place]
    _, s, _ = routes.case(name)
    a = s.a[0]
    point = {"leaves": zeros(model), "dq": 0 * v, "v": v, "tau": s.tau[0], "external": s.external[0]}
    gradient = reverse(REVERSE[name], name, model, point, q, a)
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        assert np.all(np.isfinite(leaf)), f"d/d{jax.tree_util.keystr(path)} is not finite"
    for what, direction in directions(model, rng):
        expected = slope(name, model, point, direction, q, a)
        behind = sum(expected[part] for part in REVERSE[name])
        assert pair(gradient, direction) == pytest.approx(behind, rel=3e-6, abs=3e-6), what


@pytest.mark.slow
@pytest.mark.spec("RBDA-X-GRAD", "RBDA-5.5-DERIV")
@pytest.mark.parametrize("place", PLACES)
def test_rates_of_inverse_dynamics(place, rng):
    """In forward mode."""
    model, q, v = places("screws")[place]
    _, s, _ = routes.case("screws")
    a = s.a[0]
    point = {"leaves": zeros(model), "dq": 0 * v, "v": v, "tau": s.tau[0], "external": s.external[0]}
    for what, direction in directions(model, rng):
        expected = slope("screws", model, point, direction, q, a)["id"]
        tangent = float(forward(("id",), "screws", model, point, direction, q, a))
        assert tangent == pytest.approx(expected, rel=3e-6, abs=3e-6), what


@pytest.mark.spec("RBDA-X-GRAD")
def test_full_jacobians_agree_in_both_modes():
    model, s, _ = routes.case("arm")
    q, v, _, tau, _ = (x[0] for x in s)

    def f(q, v, tau):
        return dx.forward_dynamics(model, q, v, tau)

    ahead = jax.jit(jax.jacfwd(f, argnums=(0, 1, 2)))(q, v, tau)
    behind = jax.jit(jax.jacrev(f, argnums=(0, 1, 2)))(q, v, tau)
    for x, y in zip(ahead, behind, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-10 * np.abs(x).max())
    np.testing.assert_allclose(ahead[2], routes.case("arm")[2]["inverse"][0], atol=1e-11 * np.abs(ahead[2]).max())
    # Of the mass matrix, by the configuration.
    slopes = jax.jit(jax.jacrev(lambda q: dx.mass_matrix(model, q)))(q)
    direction = np.random.default_rng(2).normal(size=model.nv)
    h = 1e-4

    def at(t):
        return np.asarray(dx.mass_matrix(model, q + t * direction))

    expected = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
    np.testing.assert_allclose(slopes @ direction, expected, atol=1e-9 * np.abs(expected).max())

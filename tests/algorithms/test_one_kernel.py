"""An algorithm as one kernel on a CPU: the same numbers, and only what such a kernel can hold."""

from __future__ import annotations

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees
from compiling import kernels
from jax import lax

import dynax as dx
from dynax.compile import one_kernel, versions
from dynax.compile.fence import apart
from dynax.compile.one_kernel import in_one_kernel
from dynax.compile.trial_run import MARK, every_loop
from dynax.derivatives import tangent
from dynax.derivatives.inverse_dynamics import ELEMENTWISE
from dynax.sweep import walk
from dynax.sweep.bodies import BodyWalk
from dynax.sweep.levels import LevelWalk
from dynax.tree.layout import layout

KNOWN = versions.available() and jax.default_backend() == "cpu"
pytestmark = pytest.mark.skipif(not KNOWN, reason="this version of JAX, or this device, is not known to have them")


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_every_loop_computes_the_same(dtype):
    x = jnp.linspace(0.1, 0.9, 12, dtype=dtype)
    used = {equation.primitive.name for equation in one_kernel.equations(jax.make_jaxpr(every_loop)(x).jaxpr)}
    assert used >= one_kernel.LOOPS
    single = jax.jit(lambda x: in_one_kernel(every_loop, [x]))
    assert MARK in single.lower(x).as_text()
    for found, expected in zip(single(x), jax.jit(every_loop)(x), strict=True):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(found, expected, rtol=20 * jnp.finfo(dtype).eps)


def test_what_is_apart_is_fused_with_nothing():
    """Also for a single user and in a loop, where a look-up is no line; nor with it in a derivative."""

    def function(x, fence):
        whole = jnp.cos(fence(jnp.sin(x)))
        return [whole, lax.scan(lambda c, y: (c * y, jnp.cos(fence(jnp.sin(c + y)))), x[0], x)[1]]

    def together(fence) -> int:
        run = jax.jit(lambda x: in_one_kernel(partial(function, fence=fence), [x]))
        text = run.lower(x).compile().as_text()
        fused = re.findall(r"^%fused.*?^}", text, re.MULTILINE | re.DOTALL)
        return sum(" sine(" in part and " cosine(" in part for part in fused)

    x = jnp.linspace(0.1, 0.9, 24).reshape(4, 6)
    assert together(lambda a: a) == 2
    assert together(apart) == 0
    slope = jax.grad(lambda x: sum(map(jnp.sum, jax.vmap(partial(function, fence=apart))(x[None]))))(x)
    expected = jax.grad(lambda x: sum(map(jnp.sum, function(x, lambda a: a))))(x)
    np.testing.assert_allclose(slope, expected, rtol=1e-6)


def test_arguments_that_nothing_reads():
    """None of them, or empty ones, stop the compiler, which is what it does by itself."""
    x, none, whole = jnp.arange(3.0), jnp.zeros((0, 2)), jnp.arange(2)

    def function(x, unread, none, whole):
        return [2.0 * x, jnp.ones(4), none + 1.0]

    twice, ones, empty = jax.jit(lambda *xs: in_one_kernel(function, xs))(x, 3.0 + x, none, whole)
    np.testing.assert_array_equal(twice, 2.0 * x)
    np.testing.assert_array_equal(ones, 1.0)
    assert empty.shape == (0, 2)


@pytest.mark.parametrize("known", ["model", "all", "zeros"])
def test_constants_stay_outside(known):
    """XLA moves constants into a call, and then stops at the arguments that nothing reads any more."""
    model = jax.tree.map(np.asarray, trees.tree("screws"))
    s = trees.states(model, 1)
    q, v, tau = (np.asarray(x[0]) for x in (s.q, s.v, s.tau))
    if known == "zeros":
        v, tau = 0.0 * v, 0.0 * tau
    fixed = {"model": (), "zeros": (v, tau), "all": (q, v, tau)}[known]
    given = (q, v, tau)[: 3 - len(fixed)]
    compiled = jax.jit(lambda *given: dx.forward_dynamics(model, *given, *fixed)).lower(*given).compile()
    np.testing.assert_allclose(compiled(*given), dx.forward_dynamics(model, q, v, tau), rtol=1e-10)
    text = compiled.as_text()
    # XLA marks small loops of its own as well: ours is the call with all the arguments.
    bodies = [
        re.search(rf"\n%{re.escape(called)} (.*?)\n\}}", text, re.DOTALL)[1].splitlines()[1:]
        for called in re.findall(rf"to_apply=%([\w.]+), .*{MARK}", text)
    ]
    lines = max(bodies, key=lambda lines: sum(" parameter(" in line for line in lines))
    names = [line.split(" = ")[0].split("%")[1] for line in lines if " parameter(" in line]
    body = "\n".join(line for line in lines if " parameter(" not in line)
    assert len(names) > 10
    assert all(re.search(rf"%{re.escape(name)}(?![\w.])", body) for name in names)


@pytest.mark.parametrize(
    "library",
    [
        lambda x: x @ x,
        lambda x: jnp.linalg.cholesky(x + 40.0 * jnp.eye(40)),
        lambda x: jnp.sort(x),
        lambda x: x.at[jnp.array([0, 3, 0])].add(1.0),
        lambda x: lax.scan(lambda c, y: (c @ x, y), x, x)[0],
    ],
    ids=["product", "factor", "sort", "scatter", "product in a loop"],
)
def test_what_a_kernel_cannot_hold_runs_as_ever(library):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(40, 40)))
    compiled = jax.jit(lambda x: in_one_kernel(lambda x: [library(x)], [x]))
    assert MARK not in compiled.lower(x).as_text()
    np.testing.assert_allclose(compiled(x)[0], library(x), rtol=1e-12)


@pytest.mark.parametrize("axis", [0, 1, (0, 1)])
def test_large_sums_are_inside(axis):
    """A library's, where they are not written out."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(70, 80)))
    compiled = jax.jit(lambda x: in_one_kernel(lambda x: [jnp.sum(x[::-1], axis=axis)], [x]))
    assert MARK in compiled.lower(x).as_text()
    np.testing.assert_allclose(compiled(x)[0], np.sum(x[::-1], axis=axis), rtol=1e-12, atol=1e-12)


def gradient(*args):
    return jax.grad(lambda *args: dx.forward_dynamics(*args).sum(), argnums=(1, 2, 3))(*args)


def mass_matrix(model, q, v, tau):
    """Of more than 7 freedoms: its walks are in a kernel, the product of matrices after them is not."""
    return dx.mass_matrix(model, q)


def coriolis_matrix(model, q, v, _):
    return dx.coriolis_matrix(model, q, v)


def inverse_mass_matrix(model, q, *_):
    return dx.inverse_mass_matrix(model, q)


def floating(model, q, v, a):
    return dx.floating_equations(model, q, v), dx.floating_inverse_dynamics(model, q, v, a[6:])


SEVERAL = ((-1, dx.Free()), (0, dx.Spherical()), (0, dx.Cylindrical((0.3, -1.0, 0.2))), (1, dx.Revolute()))
FUNCTIONS = {
    "forward dynamics": (dx.forward_dynamics, lambda: trees.build(SEVERAL, 5)),
    "forward dynamics of every joint": (dx.forward_dynamics, lambda: trees.tree("mixed")),
    "mass matrix": (mass_matrix, lambda: trees.tree("screws")),
    "inverse dynamics": (dx.inverse_dynamics, lambda: trees.tree("screws")),
    "Coriolis matrix": (coriolis_matrix, lambda: trees.tree("screws")),
    "inverse of the mass matrix": (inverse_mass_matrix, lambda: trees.tree("screws")),
    "floating base": (floating, lambda: trees.tree("screws")),
    "gradient": (gradient, lambda: trees.tree("arm")),
}
LONG = "forward dynamics of every joint"


@pytest.fixture
def without_kernels(monkeypatch):
    """A function after which programs are made for another version of JAX; none of them stays for other tests."""

    def begin():
        monkeypatch.setattr(one_kernel, "available", lambda: False)
        jax.clear_caches()

    yield begin
    jax.clear_caches()


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n == LONG else ()) for n in FUNCTIONS])
def test_one_state_a_batch_and_many_kernels_agree(name, without_kernels):
    """In one kernel, tile by tile, and as another version of JAX would have it."""
    function, tree = FUNCTIONS[name]
    model = tree()
    s = trees.states(model, 500)
    batch = s.q, s.v, s.tau
    state = tuple(x[7] for x in batch)
    function = partial(function, model)
    lone, tiles = jax.jit(lambda *xs: function(*xs)), jax.jit(jax.vmap(function))
    assert MARK in lone.lower(*state).as_text()
    assert MARK in tiles.lower(*batch).as_text()
    one, many = lone(*state), tiles(*batch)
    without_kernels()
    plain = jax.jit(jax.vmap(function))
    assert MARK not in plain.lower(*batch).as_text()
    expected = plain(*batch)
    for x, y, z in zip(*map(jax.tree.leaves, (one, many, expected)), strict=True):
        np.testing.assert_allclose(y, z, rtol=1e-9, atol=1e-11 * np.abs(z).max())
        np.testing.assert_allclose(x, z[7], rtol=1e-9, atol=1e-11 * np.abs(z).max())


def test_tangents_of_few_freedoms_are_in_one_kernel():
    """The value with what its derivatives need, and the tangent: no matrix product of a library is among them."""
    model = trees.tree("screws")
    s = trees.states(model, 1)
    assert model.nv <= ELEMENTWISE
    at = s.q[0], s.v[0], s.tau[0]
    along = jax.jit(jax.jacfwd(partial(dx.forward_dynamics, model), argnums=(0, 1, 2))).lower(*at)
    assert kernels(along.as_text()) == 2


@pytest.mark.parametrize("size", [ELEMENTWISE, ELEMENTWISE + 1])
def test_sums_over_ancestors_written_out_and_by_a_product(size, rng):
    relation, x = rng.random((size, size)) < 0.5, rng.normal(size=(6, size, 3))
    expected = np.einsum("ij,kjb->kib", relation, x)
    np.testing.assert_allclose(tangent.sums_over(relation, jnp.asarray(x)), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("count", [20, 100])
def test_bodies_write_in_place(count):
    """No step of a walk body by body copies the places through which bodies hand on."""
    w = walk(trees.random_parents(np.random.default_rng(1), count), 1, "bodies")
    samples = 16

    def step(carry, x):
        total = jax.tree.map(lambda a, b: jnp.sin(a) * b + a, carry, (x, 2.0 * x))
        return total, (total[0] * total[1], carry[0] + carry[1])

    def walks(x):
        start = (jnp.zeros((1, samples)),) * 2
        out = w.scatter(step, start, x)
        return jax.tree.leaves((out, w.gather(step, (jnp.zeros(samples),) * 2, out[0])))

    text = jax.jit(lambda x: in_one_kernel(walks, [x])).lower(jnp.ones((count, samples))).compile().as_text()
    loops = [text.split(f"\n%{name} (")[1].split("\n}")[0] for name in re.findall(r"body=%([\w.\-]+)", text)]
    assert len(loops) == 2
    held = {f"[{rows},{samples}]" for rows in (w.places, w.sums)}
    assert all(any(shape in loop for loop in loops) for shape in held)
    copies = [line for loop in loops for line in loop.split("\n") if " copy(" in line]
    assert not [line for line in copies if any(shape in line for shape in held)]


def test_trees_go_body_by_body():
    assert isinstance(layout(trees.tree("screws").topology, "automatic").bodies, BodyWalk)
    limb = trees.build([(-1, dx.Revolute()), (0, dx.Revolute()), (1, dx.Revolute())], 3)
    assert isinstance(layout(limb.topology, "automatic").bodies, LevelWalk)

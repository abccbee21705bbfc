"""Kernels for GPUs without a GPU: their text, as C++ for this processor, computes what XLA does."""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
from functools import partial

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import Literal
from trees import states, tree

import dynax as dx
from dynax.compile import batching
from dynax.compile.gpu import call, nvrtc
from dynax.compile.gpu.rules import NotReadError
from dynax.compile.gpu.scalars import TooLargeError
from dynax.compile.trial_run import every_loop

COMPILER = shutil.which("c++") or shutil.which("g++")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no compiler for C++ here")
AS_ON_A_PROCESSOR = """#include <cmath>
using namespace std;
#define __device__
#define __global__
#define __forceinline__ inline
struct Place { int x; };
static Place blockIdx, blockDim = {1}, threadIdx = {0};
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
"""


def launched(text, arguments, results, count, folder):
    """The kernel, thread after thread."""
    pointers = text[text.index("walk(") + 5 : text.index(") {", text.index("walk("))].split(", ")
    casts = ", ".join(f"({p.replace(' __restrict__', '').rsplit(' ', 1)[0]})a[{k}]" for k, p in enumerate(pointers))
    threads = f"for (int k = 0; k < n; k++) {{ blockIdx.x = k; walk({casts}); }}"
    every = f'extern "C" void run(int n, void** a) {{ {threads} }}'
    source, library = folder / f"k{abs(hash(text))}.cpp", folder / f"k{abs(hash(text))}.so"
    source.write_text(AS_ON_A_PROCESSOR + text + every)
    subprocess.run([str(COMPILER), "-O0", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    inputs = [np.ascontiguousarray(x) for x in arguments]
    outputs = [np.full(x.shape, 77, x.dtype) for x in results]
    arrays = [x for x in (*inputs, *outputs) if x.size]
    ctypes.CDLL(str(library)).run(count, (ctypes.c_void_p * len(arrays))(*(x.ctypes.data for x in arrays)))
    return outputs


def computed(function, leaves, batch, folder):
    """`function(leaves)` by its kernels."""
    own = call.texts(function, leaves, batch)
    given = launched(own.ahead, leaves, own.given, 64, folder) if own.ahead else []
    return launched(own.walk, [*leaves, *given], own.results, math.prod(batch), folder)


def by_kernels(function, *args, folder):
    """`function(*args)`, where every function of a batch that is asked for is computed by its kernels; and how many."""
    count = 0

    def run(jaxpr, constants, values):
        nonlocal count
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *values), strict=True))
        for equation in jaxpr.eqns:
            given = [x.val if isinstance(x, Literal) else known[x] for x in equation.invars]
            own = equation.params
            if equation.primitive.name == "dynax_batch_last" and not own["function"].known:
                count += 1
                whole = partial(own["function"].on_leaves, own["structure"])
                found = computed(whole, [np.asarray(x) for x in given], own["batch"], folder)
            elif equation.primitive.name in ("jit", "pjit"):
                found = run(getattr(own["jaxpr"], "jaxpr", own["jaxpr"]), getattr(own["jaxpr"], "consts", ()), given)
            else:
                found = equation.primitive.bind(*given, **own)
            found = found if isinstance(found, list | tuple) else [found]
            known.update(zip(equation.outvars, found, strict=True))
        return [x.val if isinstance(x, Literal) else known[x] for x in jaxpr.outvars]

    traced, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
    found = run(getattr(traced, "jaxpr", traced), getattr(traced, "consts", ()), jax.tree.leaves(args))
    assert count
    return jax.tree.structure(shapes).unflatten(found)


@needs_compiler
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_every_operation_of_a_kernel(dtype, tmp_path):
    x = jnp.linspace(0.1, 0.9, 12, dtype=dtype)
    batch = jnp.stack([x, x[::-1], x * x], axis=-1)
    found = computed(lambda xs: every_loop(*xs), [batch], (3,), tmp_path)
    for a, b in zip(found, jax.vmap(every_loop, -1, -1)(batch), strict=True):
        np.testing.assert_allclose(a, np.asarray(b), rtol=20 * float(jnp.finfo(dtype).eps))


def rounds(x):
    """Loops in a loop, of which one does not change, branches, and places that only the run knows."""

    def halved(y):
        return lax.while_loop(lambda c: c[0] > x[1], lambda c: (0.5 * c[0], c[1] + 1), (y, 0))

    def body(carry):
        total, k = carry
        still, _ = halved(x[0])
        moving, count = halved(total)
        place = (k + count) % 3
        table = x[3:6].at[place].add(moving).at[0].set(still)
        other = lax.dynamic_update_slice(x[:4], x[4:6], (place,))
        chosen = lax.switch(k % 3, [lambda: table[place], lambda: other.sum(), lambda: jnp.cumsum(table)[place]])
        return total + jnp.abs(chosen), k + 1

    total, k = lax.while_loop(lambda c: c[1] < 5, body, (x[2], 0))
    far = (4 * x[:2] - 1).astype(int)
    outside = [x.at[far].get(mode="fill"), x.at[far].get(mode="fill", fill_value=3.0), jnp.arange(6).at[far].get()]
    best = jnp.argmax(x), jnp.argmin(x), *outside, x.at[far].add(1.0)
    return [total, k, *best, jnp.dot(x[:3], x[3:6]), x.reshape(2, 3) @ x.reshape(3, 2), jax.nn.sigmoid(x), x**-2]


@needs_compiler
def test_loops_branches_and_places(tmp_path):
    x = jnp.asarray(np.random.default_rng(0).uniform(0.2, 2.0, size=(6, 7)))
    found = computed(lambda xs: rounds(*xs), [x], (7,), tmp_path)
    for a, b in zip(found, jax.vmap(rounds, -1, -1)(x), strict=True):
        np.testing.assert_allclose(a, np.asarray(b), rtol=1e-14)


@needs_compiler
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("turned", [True, False])
def test_linear_systems(left, lower, turned, tmp_path):
    rng = np.random.default_rng(2)
    a = rng.normal(size=(4, 4, 5))
    b = rng.normal(size=(4, 3, 5) if left else (3, 4, 5))

    def solved(a, b):
        spd = a @ a.T + jnp.eye(4)
        factor = jnp.linalg.cholesky(spd)
        triangle = jnp.tril(a) + 3 * jnp.eye(4) if lower else jnp.triu(a) + 3 * jnp.eye(4)
        x = lax.linalg.triangular_solve(triangle, b, left_side=left, lower=lower, transpose_a=turned)
        rows = b if left else b.T
        return [factor, x, jax.scipy.linalg.solve(spd, rows, assume_a="pos")]

    found = computed(lambda xs: solved(*xs), [a, b], (5,), tmp_path)
    for x, y in zip(found, jax.vmap(solved, -1, -1)(a, b), strict=True):
        np.testing.assert_allclose(x, np.asarray(y), rtol=1e-12, atol=1e-13)


@needs_compiler
def test_what_is_not_a_number_stays_so(tmp_path):
    x = jnp.asarray([[jnp.nan, 1.0], [jnp.inf, -jnp.inf], [2.0, jnp.nan]])

    def several(x):
        return [x.max(), x.min(), jnp.argmax(x), x + 1.0, jnp.isfinite(x), jnp.sign(x), jnp.maximum(x, 0.0)]

    for a, b in zip(computed(lambda xs: several(*xs), [x], (2,), tmp_path), jax.vmap(several, -1, -1)(x), strict=True):
        np.testing.assert_array_equal(a, np.asarray(b))


@needs_compiler
def test_arrays_along_some_axes_of_the_batch(tmp_path):
    rng = np.random.default_rng(1)
    x, y, z = (rng.normal(size=shape) for shape in ((4, 2, 3), (4, 1, 3), (4, 2, 1)))
    (found,) = computed(lambda xs: [xs[0] * xs[1] + jnp.sin(xs[2])], [x, y, z], (2, 3), tmp_path)
    np.testing.assert_allclose(found, x * y + np.sin(z), rtol=1e-15)


@needs_compiler
@pytest.mark.parametrize("name", ["arm", pytest.param("screws", marks=pytest.mark.slow)])
def test_dynamics_and_their_gradients(name, tmp_path):
    """Of a fixed arm, and of screws on a floating body."""
    model = tree(name)
    q, v, _, tau, _ = states(model, 3)

    def value(q, v, tau):
        return jnp.sum(jnp.sin(dx.forward_dynamics(model, q, v, tau)))

    several = jax.vmap(jax.value_and_grad(value, argnums=(0, 1, 2)))
    found = by_kernels(several, q, v, tau, folder=tmp_path)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(several)(q, v, tau)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
@needs_compiler
def test_a_step_with_contact(tmp_path):
    """A box on its edge, on its face and in the air: loops until each sample is done."""
    scene = dx.load_scene(
        """<mujoco><worldbody><geom type="plane" size="5 5 1"/><body name="box"><freejoint/>
        <geom type="box" size="0.1 0.15 0.2" mass="2"/></body></worldbody></mujoco>"""
    )
    q = jnp.tile(dx.neutral(scene.model), (3, 1)).at[:, 2].set(jnp.array([0.19, 0.2, 0.5]))
    v = jnp.tile(jnp.array([0.3, 0.0, 0.0, 0.5, 0.0, -1.0]), (3, 1))
    step = jax.vmap(lambda q, v: dx.step(scene, q, v, jnp.zeros(6), 0.01))
    found = by_kernels(step, q, v, folder=tmp_path)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(step)(q, v)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)


def test_what_a_kernel_cannot_have_is_told():
    x = jnp.ones((4, 3))
    with pytest.raises(NotReadError, match="'sort'"):
        call.texts(lambda xs: [jnp.sort(xs[0], axis=0)], [x], (3,))
    with pytest.raises(NotReadError, match="complex"):
        call.texts(lambda xs: [jnp.abs(xs[0] + 1j)], [x], (3,))


def test_what_is_too_long_is_told(monkeypatch):
    monkeypatch.setattr(call, "LONGEST", 20)
    with pytest.raises(TooLargeError, match="more than 20 lines"):
        call.texts(lambda xs: [jnp.sin(xs[0]) * xs[0] + 1.0], [jnp.ones((9, 3))], (3,))


@pytest.fixture
def as_if_there_were_a_gpu(monkeypatch):
    monkeypatch.setattr(call, "available", lambda: True)
    monkeypatch.setattr(call, "_architecture", lambda: "compute_90")
    monkeypatch.setattr(nvrtc, "ptx", lambda text, architecture: f"// {len(text)} {architecture}")


def test_a_program_for_a_gpu_calls_the_kernels(as_if_there_were_a_gpu):
    """What varies in the batch in one, what does not in one before it; and without kernels where that cannot be."""
    model = tree("arm")
    q = jnp.tile(dx.neutral(model), (300, 1))

    def lowered(function):
        return jax.jit(jax.vmap(function)).trace(q).lower(lowering_platforms=("cuda",)).as_text()

    text = lowered(lambda q: dx.gravity_force(model, q))
    assert text.count(call.TARGET) == 2
    assert f"block_x = {call.threads(300)} : i32" in text
    assert "grid_x = 10 : i32" in text
    in_order = batching.trailing(lambda nothing, q: jnp.sort(q, axis=0))
    assert call.TARGET not in lowered(lambda q: in_order(None, q))


def test_what_is_exported_or_empty_has_none(as_if_there_were_a_gpu):
    """Exported programs may call only what JAX promises to keep; of no samples there is no thread."""
    model = tree("arm")
    force = jax.jit(jax.vmap(lambda q: dx.gravity_force(model, q)))
    (samples,) = jax.export.symbolic_shape("b")
    for shape in ((5, model.nq), (samples, model.nq)):
        exported = jax.export.export(force, platforms=("cuda",))(jax.ShapeDtypeStruct(shape, jnp.float64))
        assert call.TARGET not in exported.mlir_module()
    text = force.trace(jnp.zeros((0, model.nq))).lower(lowering_platforms=("cuda",)).as_text()
    assert call.TARGET not in text


@pytest.fixture
def no_gpu(monkeypatch):
    def devices(platform):
        raise RuntimeError(f"Unknown backend {platform}")

    monkeypatch.setattr(jax, "devices", devices)
    call.answer.cache_clear()
    yield
    call.answer.cache_clear()


def test_without_a_gpu_nothing_is_asked_of_one(no_gpu):
    assert not call.available()
    assert "no NVIDIA GPU" in call.answer().reason
    x = jnp.ones((4, 3))
    (same,) = call.called(lambda xs: [xs[0] + 1.0], [x], (3,))
    np.testing.assert_array_equal(same, x + 1.0)


def test_cuda_compiles_it():
    """With CUDA's own compiler, which needs no GPU."""
    if nvrtc.present():
        pytest.skip(nvrtc.present())
    own = call.texts(lambda xs: every_loop(*xs), [jnp.ones((12, 200), jnp.float32)], (200,), "__launch_bounds__(32)")
    program = nvrtc.ptx(own.walk, "compute_80")
    assert ".entry walk" in program
    assert ".maxntid 32" in program
    with pytest.raises(nvrtc.CompilerError, match="undefined"):
        nvrtc.ptx(own.walk.replace("sinf(", "sinus("), "compute_80")

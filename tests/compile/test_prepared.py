"""Programs as one kernel wants them: the same numbers, without what a kernel cannot hold or XLA would compute twice."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

import dynax as dx
from dynax.compile import one_kernel
from dynax.compile.batching import trailing
from dynax.compile.one_kernel import equations
from dynax.compile.prepared import BATCH, LARGEST_SUM, LONG, MUCH, SOME, Lines, is_large_sum, prepared
from dynax.sweep import take_rows


def names(program):
    return [equation.primitive.name for equation in equations(program.jaxpr)]


def same(function, *args, lines):
    program = jax.make_jaxpr(function)(*args)
    found = prepared(program, lines)
    for a, b in zip(jaxpr_as_fun(found)(*args), jax.tree.leaves(function(*args)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    return found


@jax.jit
def twice(x):
    return jnp.where(x > 0, 2.0 * x, -x)


@jax.custom_jvp
def odd(x):
    return twice(x) + 1.0


odd.defjvp(lambda primals, tangents: (odd(*primals), tangents[0]))


@pytest.mark.parametrize("lines", Lines)
def test_calls_are_replaced_by_their_equations(lines):
    held = jnp.arange(3.0)

    def step(total, x):
        return twice(total) + odd(x), twice(twice(x))

    def function(x):
        last, rows = jax.lax.scan(step, x[0], x)
        return twice(last) + twice(x[1]), rows, jax.jit(lambda x: x + held)(x), x

    found = same(function, jnp.linspace(-1.0, 1.0, 12).reshape(4, 3), lines=lines)
    assert "custom_jvp_call" not in names(found)
    assert "_where" not in str(found)


@pytest.mark.parametrize("lines", Lines)
def test_what_nothing_comes_of_is_left_out(lines):
    """Within loops too; a result that one of several operations asks for stays."""

    def step(total, x):
        jnp.sin(total * x)
        return total + jnp.cos(x), None

    def function(x):
        jnp.sin(x) * jnp.exp(x)
        return jax.lax.scan(step, x, 2.0 * x[:, None])[0]

    found = same(function, jnp.linspace(0.1, 0.9, 3), lines=lines)
    assert not {"sin", "exp"} & set(names(found))
    assert "cos" in names(found)


@pytest.mark.parametrize("combine", [jnp.sum, jnp.max, jnp.min])
@pytest.mark.parametrize("axes", [1, (0, 2), 3])
def test_large_sums_are_written_out(combine, axes):
    x = jax.random.normal(jax.random.key(0), (2, 7, 40, LARGEST_SUM // 20))
    found = same(partial(combine, axis=axes), x, lines=Lines.OWN)
    assert not any(map(is_large_sum, equations(found.jaxpr)))
    assert not any(name.startswith("reduce") for name in names(found))


def test_small_sums_stay():
    found = same(partial(jnp.sum, axis=1), jnp.ones((3, 5, 2)), lines=Lines.OWN)
    assert names(found) == ["reduce_sum"]


def test_a_long_result_that_is_used_twice_has_a_line():
    def used(count, times):
        def function(x):
            for k in range(count):
                x = x * x + 0.1 * k
            return [jnp.flip(x) * (k + 2.0) for k in range(times)]

        return names(same(function, jnp.linspace(0.0, 1.0, 5), lines=Lines.DERIVATIVE)).count("dynax_apart")

    assert used(LONG, 2) == 1
    assert used(LONG, 1) == 0
    assert used(LONG // 4, 2) == 0

    def plain(x):
        for k in range(LONG):
            x = x * x + 0.1 * k
        return x + 1.0, x - 1.0

    assert "dynax_apart" not in names(same(plain, jnp.linspace(0.0, 1.0, 5), lines=Lines.OWN))


def formula(x, count=MUCH):
    for k in range(count):
        x = x * x + 0.1 * k
    return x


def joined(x):
    return jnp.concatenate([formula(x), 2.0 * x])


def padded(x):
    return jax.lax.pad(formula(x), 0.0, ((1, 2, 0), (0, 0, 0)))


def placed_in(x):
    return jax.lax.dynamic_update_slice(jnp.zeros((4, x.shape[1])), formula(x), (1, 0))


def spread_over_rows(x):
    return formula(x[:1]) * x


def used_together(x):
    return formula(jnp.concatenate([x, 2.0 * x]))


@pytest.mark.parametrize("function", [joined, padded, placed_in, spread_over_rows, used_together])
def test_of_a_batch_long_parts_are_computed_apart(function):
    """Of derivatives and of what asks for it, and not of one state."""

    def drawn(length, lines):
        x = jnp.linspace(0.0, 1.0, 2 * length).reshape(2, length)
        return names(same(function, x, lines=lines)).count("dynax_apart")

    assert drawn(BATCH, Lines.PARTS) == drawn(BATCH, Lines.DERIVATIVE) == 1
    assert drawn(BATCH, Lines.OWN) == 0
    assert drawn(BATCH // 2, Lines.PARTS) == 0


@pytest.mark.parametrize("length", [SOME // 4, MUCH])
def test_what_is_looked_up_is_computed_where_it_is_used(length):
    """So that long parts are apart behind look-ups too."""

    def function(x):
        return jnp.concatenate([take_rows(formula(x, length), np.array([2, 0])), x])

    x = jnp.linspace(0.0, 1.0, 3 * BATCH).reshape(3, BATCH)
    assert names(same(function, x, lines=Lines.DERIVATIVE)).count("dynax_apart") == (length == MUCH)


@pytest.fixture(scope="module")
def kinds():
    """A function with integer results, of leaves and arrays, some of which may move."""

    def core(tree, q, v):
        scale, offset = tree
        found = {"x": scale * jnp.sin(q) * v + offset, "sign": jnp.sign(v).astype(int), "half": jnp.sum(q * v, axis=0)}
        return found

    plain = core, trailing(core)
    rng = np.random.default_rng(0)
    return *plain, (jnp.array(1.3), jnp.array([0.1, 0.2, 0.3])), *jnp.array(rng.normal(size=(2, 4, 3)))


def test_derivatives_are_those_of_the_plain_function(kinds):
    core, function, tree, q, v = kinds

    def power(function, scale, q, v):
        found = function((scale, tree[1]), q, v)
        return jnp.sum(found["x"] ** 2) + jnp.sum(found["half"])

    def close(of):
        for a, b in zip(jax.tree.leaves(of(function)), jax.tree.leaves(of(core)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)

    close(lambda f: jax.grad(partial(power, f), argnums=(0, 1))(tree[0], q[0], v[0]))
    close(lambda f: jax.vmap(jax.grad(partial(power, f), argnums=(0, 2)), in_axes=(None, 0, 0))(tree[0], q, v))
    close(lambda f: jax.grad(lambda s: jnp.sum(jax.vmap(partial(power, f, s))(q, v)))(tree[0]))
    close(lambda f: jax.vmap(jax.hessian(partial(power, f), argnums=(0, 1, 2)), (None, 0, None))(tree[0], q, v[0]))
    close(lambda f: jax.jvp(lambda q: f(tree, q, v[0])["x"], (q[0],), (v[0],)))
    close(lambda f: jax.jacrev(jax.jacrev(lambda q: jnp.sum(f(tree, q, v[0])["x"])))(q[0]))


def test_derivatives_are_in_kernels_too(kinds):
    """Of a batch, outside of the functions themselves nothing is left to compute."""
    _, function, tree, q, v = kinds

    def back(q, v, bar):
        return jax.vjp(lambda q, v: function(tree, q, v)["x"], q, v)[1](bar)

    left = set(names(jax.make_jaxpr(jax.vmap(back))(q, v, q)))
    assert left <= {"dynax_batch_last", "broadcast_in_dim", "transpose"}, left


@pytest.mark.spec("RBDA-X-BATCH")
def test_a_batch_of_steps_with_loops_is_in_kernels(monkeypatch):
    """Steps choose independent freedoms anew by sums over aggregates, which are a library's where they are large."""
    hinge, inertia = dx.Revolute((0, 1.0, 0)), dx.SpatialInertia(1.0, (0.1, 0, 0), (1e-2, 1e-2, 1e-2))
    shift = dx.Transform.from_translation
    builder = dx.ModelBuilder(name="four-bar")
    builder.body("crank", joint=hinge, inertia=inertia)
    builder.body("rod", parent="crank", joint=hinge, placement=shift((0.2, 0, 0)), inertia=inertia)
    builder.body("rocker", joint=hinge, placement=shift((0.5, 0, 0)), inertia=inertia)
    ends = {"predecessor_placement": shift((0.5, 0, 0)), "successor_placement": shift((0.4, 0, 0))}
    builder.loop("pin", predecessor="rod", successor="rocker", joint=hinge, **ends)
    model = builder.build()
    q = dx.assemble(model, jnp.array([1.2, -1.0, 1.4])).q
    embedded = dx.embed(model, q)
    refused = []
    inside = one_kernel._can_be_inside
    monkeypatch.setattr(one_kernel, "available", lambda: True)

    def seen(equation):
        if not inside(equation):
            refused.append(equation.primitive.name)
        return inside(equation)

    monkeypatch.setattr(one_kernel, "_can_be_inside", seen)

    def end(v):
        return jnp.sum(dx.rollout(embedded, q, v, jnp.zeros((3, 1)), 0.01).q[-1])

    jax.jit(jax.vmap(jax.grad(end))).lower(jnp.ones((1024, 1)))
    assert set(refused) <= {"dynax_batch_last"}, refused  # of functions made of others, which have kernels

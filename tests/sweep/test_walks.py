"""The walks alone, with plain sums on random trees: every execution gives the same."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees

from dynax.sweep import EXECUTIONS, execution_in_one_kernel, walk

RANDOM = np.random.default_rng(7)
FORESTS = {
    "one": ((-1,), 1),
    "chain": (tuple(range(-1, 9)), 1),
    "star": ((-1,) * 6, 1),
    "limbs": ((-1, -1, -1, 0, 1, 2, 3, 4, 5), 1),
    "limbs of different lengths": ((-2, -1, 0, 1, 2), 2),
    "bush": ((-1, 0, 0, 0, 1, 1, 4, 6, 2, 8, 8), 1),
    "random": (trees.random_parents(RANDOM, 25), 1),
    "wide": (trees.random_parents(RANDOM, 30, reach=30), 1),
    "bases": (trees.random_parents(RANDOM, 20, reach=8, bases=3), 3),
    "idle base": ((-1, 0, -3, 2), 4),
}


def supports(parents):
    """`[i, j]`: whether `j` is `i` or one of its ancestors."""
    mask = np.eye(len(parents), dtype=bool)
    for i, p in enumerate(parents):
        if p >= 0:
            mask[i] |= mask[p]
    return mask


def base_of(parents):
    base = [0] * len(parents)
    for i, p in enumerate(parents):
        base[i] = base[p] if p >= 0 else -1 - p
    return np.array(base)


def subtree_sum(children, x):
    total = children + x
    return 2.0 * total, total


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("forest", FORESTS)
def test_sums_and_products(forest, execution, rng):
    parents, bases = FORESTS[forest]
    n, mask, base = len(parents), supports(parents), base_of(parents)
    w = walk(parents, bases, execution)
    value, matrix = rng.normal(size=n), rng.normal(size=(n, 2, 2))
    start = {"sum": jnp.asarray(rng.normal(size=bases)), "product": jnp.asarray(rng.normal(size=(bases, 2, 2)))}

    rows = w.arrange({"value": jnp.asarray(value), "matrix": jnp.asarray(matrix)})
    sums, products = w.restore(w.scatter(path_sum_of_rows, start, rows))
    np.testing.assert_allclose(sums, np.asarray(start["sum"])[base] + mask @ value, atol=1e-12)
    expected = np.zeros((n, 2, 2))  # products do not commute: the order of the path counts
    for i, p in enumerate(parents):
        expected[i] = (expected[p] if p >= 0 else np.asarray(start["product"])[-1 - p]) @ matrix[i]
    np.testing.assert_allclose(products, expected, atol=1e-12)

    handed, totals = w.gather(subtree_sum, jnp.zeros(()), w.arrange(jnp.asarray(value)))
    expected = value.copy()
    for i in reversed(range(n)):
        if parents[i] >= 0:
            expected[parents[i]] += 2.0 * expected[i]
    np.testing.assert_allclose(w.restore(totals), expected, atol=1e-12)
    at_bases = [sum(2.0 * expected[i] for i, p in enumerate(parents) if p == -1 - b) for b in range(bases)]
    np.testing.assert_allclose(handed, at_bases, atol=1e-12)


def path_sum_of_rows(carry, x):
    """As a step of dynax sees it: rows side by side."""
    total = carry["sum"] + x["value"]
    product = jnp.einsum("...ij,...jk->...ik", carry["product"], x["matrix"])
    return {"sum": total, "product": product}, (total, product)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_rows_come_back_in_order_and_padding_is_zero(execution):
    parents, bases = FORESTS["random"]
    w = walk(parents, bases, execution)
    x = jnp.arange(1.0, len(parents) + 1.0)
    rows = w.arrange(x)
    np.testing.assert_array_equal(w.restore(rows), x)
    np.testing.assert_array_equal(np.asarray(rows)[w.rows < 0], 0.0)
    assert sorted(w.rows[w.rows >= 0]) == list(range(len(parents)))


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_padded_rows_are_inert(execution):
    """Whatever a step makes of a row of zeros: bodies and bases never see it, nor do derivatives."""
    parents, bases = FORESTS["bush"]
    w = walk(parents, bases, execution)

    def step(children, x):
        total = children + x + jnp.where(x == 0.0, 0.0, 1.0)
        return total, total

    handed, totals = w.gather(step, jnp.zeros(()), w.arrange(jnp.ones(len(parents))))
    np.testing.assert_array_equal(w.restore(totals), 2.0 * supports(parents).sum(0))
    assert handed[0] == 2.0 * len(parents)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_an_empty_forest(execution):
    w = walk((), 2, execution)
    assert w.arrange(jnp.zeros((0, 3))).shape == (0, 3)
    if execution == "levels":
        assert w.rows.shape == (0,)


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_gradients_pass_through(execution, rng):
    parents, bases = FORESTS["bases"]
    w, n, mask = walk(parents, bases, execution), len(parents), supports(parents)
    weight = rng.normal(size=n)

    def down(x, start):
        return weight @ w.restore(w.scatter(lambda c, x: (c + x, c + x), start, w.arrange(x)))

    def up(x):
        return weight @ w.restore(w.gather(lambda c, x: (c + x, c + x), jnp.zeros(()), w.arrange(x))[1])

    slope, at_bases = jax.grad(down, argnums=(0, 1))(jnp.zeros(n), jnp.zeros(bases))
    np.testing.assert_allclose(slope, weight @ mask, atol=1e-12)
    np.testing.assert_allclose(at_bases, [weight[base_of(parents) == b].sum() for b in range(bases)], atol=1e-12)
    np.testing.assert_allclose(jax.grad(up)(jnp.zeros(n)), mask @ weight, atol=1e-12)
    # The two walks are adjoint, forwards as well as backwards.
    np.testing.assert_allclose(
        jax.jvp(up, (jnp.zeros(n),), (jnp.asarray(weight),))[1], weight @ mask.T @ weight, atol=1e-12
    )


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_chain_of_thousands(execution):
    """No recursion of Python and no unrolling: it is planned, compiled and run at once."""
    n = 5000
    w = walk(tuple(range(-1, n - 1)), 1, execution)
    down = jax.jit(lambda x: w.scatter(lambda c, x: (c + x, c + x), jnp.zeros(1), x))
    up = jax.jit(lambda x: w.gather(lambda c, x: (c + x, c + x), jnp.zeros(()), x))
    np.testing.assert_array_equal(w.restore(down(jnp.ones(n))), np.arange(1, n + 1))
    handed, totals = up(jnp.ones(n))
    np.testing.assert_array_equal(w.restore(totals), np.arange(n, 0, -1))
    assert handed[0] == n


@pytest.mark.parametrize(("forest", "looks"), [("chain", False), ("limbs", False), ("bush", True)])
def test_limbs_look_nothing_up(forest, looks):
    parents, bases = FORESTS[forest]
    w = walk(parents, bases)
    x = w.arrange(jnp.ones(len(parents)))

    def out(x):
        return w.scatter(lambda c, x: (c + x, c + x), jnp.zeros(bases), x)

    def inward(x):
        return w.gather(lambda c, x: (c + x, c + x), jnp.zeros(()), x)[1]

    for function in (out, inward):
        (loop,) = (e for e in jax.make_jaxpr(function)(x).eqns if e.primitive.name == "scan")
        assert ("dynax_links" in str(loop.params["jaxpr"])) == looks


@pytest.mark.parametrize("reach", [1, 3, 2000])
def test_bodies_hand_on_through_few_places(reach):
    """The largest branch comes last: what waits at a branching halves with each level of them."""
    parents = trees.random_parents(np.random.default_rng(3), 2000, reach=reach)
    w = walk(parents, 1, "bodies")
    assert w.places <= 2 + 1 + np.log2(2000)
    x = w.arrange(jnp.ones(2000))
    depths = w.restore(w.scatter(lambda c, x: (c + x, c + x), jnp.zeros(1), x))
    np.testing.assert_array_equal(depths, supports(parents).sum(1))
    handed, sizes = w.gather(lambda c, x: (c + x, c + x), jnp.zeros(()), x)
    np.testing.assert_array_equal(w.restore(sizes), supports(parents).sum(0))
    assert handed[0] == 2000


def test_the_execution_of_one_kernel():
    """By levels where nothing is looked up, by bodies elsewhere."""
    straight = [name for name in FORESTS if execution_in_one_kernel(*FORESTS[name]) == "levels"]
    assert straight == ["one", "chain", "star", "limbs", "idle base"]


def test_unknown_executions_are_refused():
    with pytest.raises(ValueError, match="levels"):
        walk((-1,), 1, "sideways")

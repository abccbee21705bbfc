"""Walks over nodes of several kinds, against loops over them one by one."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from dynax.sweep.kinds import MOST_RUNS, Kinds, KindWalk

PORTS = (None, 2, 0)
"""Of each kind."""
FORESTS = {
    "mixed": ([0, 1, 0, 0, 2, 1, 0], [(-1, 0), (0, 0), (1, 0), (1, 1), (1, 1), (-2, 0), (5, 1)]),
    "runs": ([0, 0, 1, 1, 0], [(-1, 0), (0, 0), (1, 0), (2, 1), (3, 0)]),
    "alternating": ([0, 1] * MOST_RUNS, [(-2, 0), *((k, 0) for k in range(2 * MOST_RUNS - 1))]),
    "alone": ([1, 1], [(-1, 0), (0, 0)]),
}


@pytest.mark.parametrize("name", FORESTS)
def test_what_each_node_hands_on(name, rng):
    kinds, parents = FORESTS[name]
    present = sorted(set(kinds))
    ports, kinds = [PORTS[k] for k in present], [present.index(k) for k in kinds]
    walk = KindWalk(kinds, parents, ports, num_bases=2)
    own = rng.normal(size=len(kinds))
    rows = Kinds(jnp.asarray(np.where(r >= 0, own[r], 0.0)) for r in walk.rows)

    def weights(kind: int) -> np.ndarray:
        """Each port hands on, and moves, in a way of its own."""
        count = ports[kind]
        return np.ones(1) if count is None else 2.0 + np.arange(count)

    def inward(handed, x):
        total = x + (handed if handed.ndim == 1 else jnp.sum(handed * (2.0 + np.arange(handed.shape[1])), axis=1))
        return 0.5 * total, (total, x)

    sums, (totals, _) = walk.gather(inward, jnp.zeros(()), rows)
    expected, at_ports = np.zeros(len(kinds)), {(i, p): 0.0 for i in range(len(kinds)) for p in range(3)}
    at_ports |= {(-1 - b, 0): 0.0 for b in range(2)}
    for i in reversed(range(len(kinds))):
        expected[i] = own[i] + sum(w * at_ports[i, p] for p, w in enumerate(weights(kinds[i])))
        at_ports[parents[i]] += 0.5 * expected[i]
    for r, found in zip(walk.rows, totals, strict=True):
        np.testing.assert_allclose(found[r >= 0], expected[r[r >= 0]])
    np.testing.assert_allclose(sums, [at_ports[-1, 0], at_ports[-2, 0]])

    # Outward a step cannot tell kinds apart by what arrives: it says by its data how many ports there are.
    def scatter(carried, x):
        value, ports = x
        moved = 0.5 * carried + value
        return moved if ports is None else moved[:, None] * (2.0 + np.arange(ports.shape[1])), moved

    marked = Kinds(
        None if count is None else jnp.zeros((len(r), count)) for r, count in zip(walk.rows, ports, strict=True)
    )
    found = walk.scatter(scatter, jnp.asarray([1.0, -2.0]), (rows, marked))
    moved: dict = {(-1, 0): 1.0, (-2, 0): -2.0}
    for i, parent in enumerate(parents):
        expected[i] = 0.5 * moved[parent] + own[i]
        moved |= {(i, p): w * expected[i] for p, w in enumerate(weights(kinds[i]))}
    for r, each in zip(walk.rows, found, strict=True):
        np.testing.assert_allclose(each[r >= 0], expected[r[r >= 0]])

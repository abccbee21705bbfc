"""Long programs in pieces: the same numbers, whatever is cut where."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import jaxpr_as_fun

from dynax.compile import pieces
from dynax.compile.pieces import in_pieces

KNOWN = np.array([0.5, 2.0, 0.25])


def long(x, y, unread):
    """With a constant, results that are arguments and numbers, what is used much later, and a loop."""
    first, (a, b) = jnp.sin(x) * KNOWN, (x, y)
    for k in range(30):
        a, b = jnp.cos(a) + b * KNOWN, a - 0.1 * k * b
    a = lax.scan(lambda s, z: (jnp.sin(s) + z * KNOWN, None), a, jnp.stack([a, b]))[0]
    return [a + first, x, b * first, jnp.zeros(3), y * unread.sum()]


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(pieces, "LONGEST", 40)
    monkeypatch.setattr(pieces, "PIECE", 25)


def called(seen):
    def run(program, arrays):
        seen.append(pieces._plain(program).eqns)
        return jaxpr_as_fun(program)(*arrays)

    return run


@pytest.mark.parametrize("function", [long, jax.jit(long), jax.jit(jax.jit(long))], ids=["plain", "called", "twice"])
def test_a_long_program_in_pieces_has_the_same_results(short, function):
    args = [jnp.arange(3.0), jnp.ones(3), jnp.zeros(2)]
    seen: list = []
    program = jax.make_jaxpr(function)(*args)
    found = in_pieces(program, args, called(seen))
    for a, b in zip(found, long(*args), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert 4 <= len(seen) <= 8
    assert max(map(len, seen)) < 2 * pieces.PIECE


def test_a_short_program_is_whole():
    seen: list = []
    args = [jnp.arange(3.0), jnp.ones(3), jnp.zeros(2)]
    in_pieces(jax.make_jaxpr(long)(*args), args, called(seen))
    assert len(seen) == 1


def test_pieces_are_kernels(short):
    """Each in a call with the mark, and compiled they are the same."""
    from dynax.compile.one_kernel import marked
    from dynax.compile.versions import available

    if not available():
        pytest.skip("this version of JAX has no such kernels")
    args = [jnp.arange(3.0), jnp.ones(3), jnp.zeros(2)]
    lowered = jax.jit(lambda *xs: marked(long, list(xs))).lower(*args)
    assert lowered.as_text().count('xla_cpu_small_call = "true"') >= 4
    for a, b in zip(lowered.compile()(*args), long(*args), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)

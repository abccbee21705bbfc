"""What forward dynamics of bodies that bend costs, by counting the operations of its program."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flexible.costs import counted
from flexible.systems import chain
from operations import count

import dynax as dx
from dynax.compile.one_kernel import equations
from dynax.embedding.flexible_nodes import forward


def operations(bodies: int, modes: int) -> int:
    model = chain(bodies, modes)
    zero = jnp.zeros(model.nv)
    return count(partial(forward, external=None), model, dx.neutral(model), zero, zero)


def test_what_is_counted():
    """A product of matrices, a loop, a branch, and nothing for what only moves."""
    a, b = jnp.ones((2, 3)), jnp.ones((3, 4))
    assert count(jnp.matmul, a, b) == 2 * 2 * 3 * 4
    assert count(lambda a: jnp.sum(a) + jnp.sqrt(a[0, 0]), a) == 5 + 1 + 1
    assert count(lambda a: a.T.reshape(-1)[::2], a) == 0
    looped = partial(jnp.vectorize(lambda x: x * x + 1.0), a)
    assert count(looped) == 12


def test_forward_dynamics_is_linear_in_bodies_and_cubic_in_modes():
    """Exactly: each body of a chain adds the same, and the count is a polynomial of third degree in the modes, whose
    leading term is that of Cholesky's factor, a third of their cube.

    A dense solution takes a third of the cube of all freedoms of the chain.
    """
    by_bodies = np.array([operations(n, 1) for n in (3, 4, 5)])
    np.testing.assert_array_equal(np.diff(by_bodies, 2), 0)
    assert abs(by_bodies[0] - 3 * np.diff(by_bodies)[0]) < 100  # what does not depend on their number
    by_modes = np.array([by_bodies[0], *(operations(3, m) for m in (2, 3, 4, 5))])
    np.testing.assert_array_equal(np.diff(by_modes, 4), 0)
    assert np.diff(by_modes, 3)[0] == 3 * 6 / 3  # bodies, 3!, leading coefficient


@pytest.mark.slow
def test_both_routes_beside_the_counts_of_the_paper():
    """Ten bodies of five and of ten modes. The composite route takes 146,780 and 664,255 operations there, here as many
    to a twelfth, though the inertia of bodies is a polynomial of their modes; the articulated one 39,840 and 91,400,
    here, where the inertia is constant as there, a quarter and a sixteenth more."""
    for modes, composite, articulated, most in ((5, 146_780, 39_840, 1.25), (10, 664_255, 91_400, 1.0625)):
        _, ours, same = counted(modes)
        assert ours == pytest.approx(composite, rel=1 / 12)
        frozen, _, less = counted(modes, "ruthless")
        assert frozen < most * articulated
        assert less < same  # what polynomials are made of is worked out once for all states


def test_what_a_kernel_is_given_does_not_grow_with_known_bodies():
    """They are stacked before, where the compiler works it out: a kernel is given as many arrays of three bodies as of
    two. Those that the compiler does not know it takes as they are."""

    def given(bodies: int, known: bool) -> int:
        model = chain(bodies, 1)
        state = dx.neutral(model), *jnp.zeros((2, model.nv))
        function = partial(dx.forward_dynamics, model) if known else dx.forward_dynamics
        traced = jax.make_jaxpr(function)(*(() if known else (model,)), *state)
        (kernel,) = (e for e in equations(traced.jaxpr) if e.primitive.name == "dynax_batch_last")
        return len(kernel.invars)

    assert given(2, known=True) == given(3, known=True) < given(2, known=False) < given(3, known=False)

"""Cosine and sine by additions and products, beside those of the C library in longer numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynax.spatial.cos_sin import cos_sin


@pytest.mark.parametrize(("dtype", "far"), [(jnp.float32, 1e4), (jnp.float64, 1e9)])
def test_right_to_the_last_digit_however_often_it_turned(dtype, far):
    rng = np.random.default_rng(0)
    quarters = 0.5 * np.pi * np.arange(-9, 10)
    angle = jnp.asarray(np.concatenate([*(rng.uniform(-t, t, 2000) for t in (1.0, 10.0, far)), quarters]), dtype)
    exact = np.asarray(angle, np.longdouble)
    for ours, theirs in zip(jax.jit(cos_sin)(angle), (np.cos(exact), np.sin(exact)), strict=True):
        assert ours.dtype == dtype
        assert np.abs(np.asarray(ours) - theirs).max() < jnp.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_of_an_angle_without_digits_left_it_is_still_some_direction(dtype):
    """Of one that is no number it is none."""
    angle = jnp.asarray([1e7, -3e12, 1e30], dtype)
    cosine, sine = cos_sin(angle)
    assert np.abs(cosine**2 + sine**2 - 1.0).max() < 4.0 * jnp.finfo(dtype).eps
    assert np.isnan(cos_sin(jnp.asarray([np.inf, -np.inf, np.nan], dtype))).all()


def test_derivatives_of_any_order():
    angle = jnp.asarray([-4.0, 0.0, 0.25 * np.pi, 0.5 * np.pi, 30.0], jnp.float64)
    first = jax.vmap(jax.jacfwd(cos_sin))(angle)
    second = jax.vmap(jax.jacrev(jax.jacfwd(cos_sin)))(angle)
    np.testing.assert_allclose(first, [-np.sin(angle), np.cos(angle)], atol=1e-15)
    np.testing.assert_allclose(second, [-np.cos(angle), -np.sin(angle)], atol=1e-15)

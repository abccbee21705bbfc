"""What a person reads of a fit, and streams of samples."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynax import identify

NAMES = ("alpha", "beta", "gamma", "delta")


@pytest.fixture
def seen(rng):
    """Four parameters: two of them only as `beta + 2 gamma`, and one that shows nowhere."""
    y = rng.normal(size=(400, 2, 4))
    y[..., 2], y[..., 3] = 2.0 * y[..., 1], 0.0
    found = identify.identifiability_of(y, NAMES, keep=("beta",))
    tau = y @ [1.5, -0.5, 0.25, 7.0] + [[0.01, 0.2]] * rng.normal(size=(400, 2))
    return found, y, tau


def test_a_report_says_what_is_known(seen):
    found, y, tau = seen
    train, kept = slice(0, 300), slice(300, 400)
    estimate = identify.weighted_least_squares(y[train][..., found.base], tau[train])
    told = identify.report(
        found, estimate, y[train], tau[train], channels=("left", "right"), held_out=(y[kept], tau[kept])
    )
    # Noise of 0.01 and 0.2 on forces of deviation 1.5, since beta + 2 gamma is zero.
    np.testing.assert_allclose(told.missed, [0.01 / 1.5, 0.2 / 1.5], rtol=0.2)
    np.testing.assert_allclose(told.held_out, [0.01 / 1.5, 0.2 / 1.5], rtol=0.2)
    text = str(told)
    assert "2 of 4 parameters" in text
    name, value, sign, deviation, _ = text.splitlines()[1].split()
    assert (name, sign) == ("alpha", "+-")
    assert abs(float(value) - 1.5) < 6.0 * float(deviation) < 0.05
    assert "beta + 2 gamma" in text
    assert "not seen: delta" in text
    assert f"{told.held_out[1]:.1%} in the log kept" in text
    figure = identify.plot(told)
    (line,) = (x for x in figure.axes[1].lines if x.get_label() == "by the parameters")
    np.testing.assert_allclose(line.get_ydata(), (y[kept][..., found.base] @ estimate.values)[:, 1])
    with pytest.raises(ValueError, match=r"`regressor` has shape \(300, 2, 4\) and its forces \(300, 1\)"):
        identify.report(found, estimate, y[train], tau[train, :1], channels=("left", "right"))


def test_a_stream_is_one_log(seen):
    """Sample by sample, as it is recorded, within `jit`; and with a memory that fades."""
    found, y, tau = seen
    y, tau, part = jnp.asarray(y[:60][..., found.base]), jnp.asarray(tau[:60]), 0.9

    def add(data, sample):
        data = identify.compress(*sample, onto=data, remembered=part)
        return data, identify.least_squares(data).values

    first = identify.compress(y[:5], tau[:5])
    last, values = jax.jit(lambda *xs: jax.lax.scan(add, first._replace(count=first.count * 1.0), xs))(y[5:], tau[5:])
    weight = np.sqrt(part ** np.maximum(0, 59 - np.maximum(4, np.arange(60)))).repeat(2)
    rows = np.asarray(y).reshape(-1, 2) * weight[:, None]
    expected = np.linalg.lstsq(rows, np.asarray(tau).reshape(-1) * weight, rcond=None)[0]
    np.testing.assert_allclose(values[-1], expected, atol=1e-12)
    np.testing.assert_allclose(last.count, np.sum(weight**2))

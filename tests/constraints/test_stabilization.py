"""Drift of loops and its cure (section 8.3)."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from constraints.facts import admissible, close, facts
from constraints.mechanisms import HINGE, at, four_bar

import dynax as dx

pytestmark = pytest.mark.slow

SLOT = dx.SphereInCylinder((0.0, 0.0, 1.0))
MODEL = four_bar((0.5, 1.2, 1.2, 1.0), joint=SLOT).model
Q = np.asarray(four_bar((0.5, 1.2, 1.2, 1.0)).q)
NEVER = np.inf


@partial(jax.jit, static_argnames=("steps", "keep"))
def run(model, q, v, settle, dt, *, steps, keep=1):
    """Runge and Kutta's fourth order: every `keep`-th state with residuals and rates; `settle` infinite: as it goes."""

    def rate(state):
        found = dx.constrained_dynamics(model, state[0], state[1], jnp.zeros(3), settle=settle)
        return (state[1], found.a), (found.residual, found.rate)

    def step(state, _):
        def moved(k, h):
            return jax.tree.map(lambda a, b: a + h * b, state, k)

        k1, told = rate(state)

        # One stage is compiled for all four.
        def stages(k, h):
            new = rate(moved(k, h))[0]
            return new, new

        _, later = jax.lax.scan(stages, k1, jnp.stack([dt / 2, dt / 2, dt]))
        new = jax.tree.map(lambda x, a, b: x + dt / 6 * (a + 2 * b[0] + 2 * b[1] + b[2]), state, k1, later)
        return new, (*state, *told)

    def leap(state, _):
        last, told = jax.lax.scan(step, state, length=keep)
        return last, jax.tree.map(lambda a: a[0], told)

    return jax.lax.scan(leap, (q, v), length=steps // keep)[1]


@pytest.fixture(scope="module")
def batch():
    """Runs of the same model, many time constants at once."""

    def go(q, v, settle, dt, steps, keep=1):
        run_all = jax.vmap(partial(run, steps=steps, keep=keep), in_axes=(None, 0, 0, 0, 0))
        return [np.asarray(x) for x in run_all(MODEL, *(jnp.asarray(x, float) for x in (q, v, settle, dt)))]

    return go


@pytest.mark.spec("RBDA-8.3-STAB", "RBDA-8.3-TSTAB")
def test_errors_decay_and_runs_stay_closed(batch):
    """Errors put in die out as `(e0 + (e0' + e0 / T) t) exp(-t / T)`; left alone they grow; T hardly matters.

    One batch of runs: two decays, and four from a closed state with a coarse step.
    """
    closed = np.asarray(dx.assemble(MODEL, Q, hold=["crank_joint"]).q)
    f = facts(MODEL, closed, np.zeros(3))
    v = admissible(f.k, np.array([2.0, 0.0, 0.0]))
    off, kicked = closed + np.array([0, 1e-3, -2e-3]), v + np.array([0.0, 0.02, 0.01])
    dt, steps = 0.01, 1200
    settles = np.array([0.1, 0.2, NEVER, 0.1, 0.2, 0.05])
    qs = np.array([off, off, closed, closed, closed, closed])
    vs = np.array([kicked, kicked, v, v, v, v])
    q, _, error, rate = batch(qs, vs, settles, np.full(6, dt), steps)
    t = dt * np.arange(100)
    for k in (0, 1):
        e, de, settle = error[k, 0], rate[k, 0], settles[k]
        assert np.abs(e).max() > 1e-4
        wanted = (e + (de + e / settle) * t[:, None]) * np.exp(-t[:, None] / settle)
        close(error[k, :100], wanted, 2e-6)
    drift = np.abs(error[2]).max(axis=1)
    assert drift[-200:].max() > 20 * np.abs(error[3:]).max()
    assert drift[-200:].max() > 1.5 * drift[500:700].max()  # and on it goes
    assert np.abs(error[3:, 600:]).max() < 2 * np.abs(error[3:, :600]).max() + 1e-9
    # A factor of two in the time constant is immaterial: what it changes in two seconds vanishes with the step's error.
    fine = batch(qs, vs, settles, np.full(6, dt / 4), steps)[0]
    for k in (4, 5):
        coarse, converged = np.abs(q[k, :200] - q[3, :200]).max(), np.abs(fine[k, :800] - fine[3, :800]).max()
        assert converged < 1e-5
        assert converged < coarse / 50


@pytest.mark.spec("RBDA-8.3-TSTAB")
def test_a_short_time_constant_makes_the_equations_stiff(batch):
    """The step this method can take is 2.79 time constants, in proportion."""
    closed = np.asarray(dx.assemble(MODEL, Q, hold=["crank_joint"]).q)
    off = closed + np.array([0, 1e-6, 0])
    dts = np.array([4e-4, 4e-4, 4e-5, 4e-5, 4e-4, 4e-5])
    settles = dts / np.array([2.6, 3.0, 2.6, 3.0, 2.0, 2.0])
    # As many steps as above, so that nothing is compiled anew.
    error = np.abs(batch(np.tile(off, (6, 1)), np.zeros((6, 3)), settles, dts, 1200)[2][:, :60]).max(axis=2)
    grown = error[:, -1] / error[:, 0]
    assert np.all(grown[[0, 2, 4, 5]] < 0.5)
    assert not np.any(grown[[1, 3]] < 10.0)  # grown or not finite


@pytest.mark.spec("RBDA-8.3-UNIV")
def test_a_weld_and_a_massless_link():
    """The four-bar's last hinge as a joint of the tree with a massless link, welded to the rocker by the loop."""
    plain = four_bar((0.5, 1.2, 1.2, 1.0)).model
    builder = dx.to_builder(four_bar((0.5, 1.2, 1.2, 1.0)).model)
    del builder.loops["close"]
    nothing = dx.SpatialInertia(0.0, (0, 0, 0), np.zeros((3, 3)))
    builder.body("pin", parent="coupler", joint=HINGE, placement=at(1.2), inertia=nothing)
    builder.loop("close", predecessor="pin", successor="rocker", joint=dx.Weld(), successor_placement=at(1.2))
    model = builder.build()
    closed = np.asarray(dx.assemble(plain, Q, hold=["crank_joint"]).q)
    own = facts(plain, closed, np.zeros(3))
    v = admissible(own.k, np.array([2.0, 0.3, 0.0]))
    tau = np.array([1.0, -2.0, 0.5])
    q4 = np.append(closed, closed[2] - closed[0] - closed[1])
    v4 = np.append(v, v[2] - v[0] - v[1])
    f = facts(model, q4, v4)
    close(f.phi, 0.0, 1e-12)
    assert len(f.k) == 6  # one condition more, and one freedom
    assert np.linalg.eigvalsh(f.h).min() < 1e-15  # which has no inertia of its own
    system = np.block([[f.h, f.k.T], [f.k, np.zeros((6, 6))]])
    a = (np.linalg.pinv(system, rcond=1e-10) @ np.concatenate([np.append(tau, 0.0) - f.c, f.bias]))[:4]
    expected = dx.constrained_dynamics(plain, closed, v, tau, method="kkt").a
    close(a[:3], expected)
    close(dx.constrained_dynamics(model, q4, v4, np.append(tau, 0.0), method="kkt").a[:3], expected)

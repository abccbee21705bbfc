"""Logs: what the filter passes, what differences give, and what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal

import dynax as dx
from dynax import identify

DT, CUTOFF = 0.004, 5.0


def test_the_filter_is_butterworths(rng):
    """As another library has it, away from the ends; a half at the cut-off, and no delay."""
    x = rng.normal(size=(2000, 2))
    sos = scipy.signal.butter(4, CUTOFF, fs=1.0 / DT, output="sos")
    expected = scipy.signal.sosfiltfilt(sos, x, axis=0)
    np.testing.assert_allclose(identify.butterworth(x, CUTOFF, DT)[500:-500], expected[500:-500], atol=1e-8)
    time = DT * np.arange(2000)
    wave = np.sin(2 * np.pi * CUTOFF * time)
    np.testing.assert_allclose(identify.butterworth(wave, CUTOFF, DT)[500:-500], 0.5 * wave[500:-500], atol=1e-4)
    line = 3.0 - 2.0 * time
    np.testing.assert_allclose(identify.butterworth(line, CUTOFF, DT), line, atol=3e-5)


def test_delays_are_found_between_samples():
    time = DT * np.arange(1500)

    def signal(t):
        return np.sin(5.0 * t) + 0.7 * np.sin(11.0 * t + 1.0) * np.exp(-((t - 3.0) ** 2))

    for late in (0.0, 0.0043, -0.0121):
        assert abs(identify.delay(signal(time), 0.2 + signal(time - late), DT, most=0.05) - late) < 0.02 * DT

    with pytest.raises(ValueError, match="longest tried: increase `most`"):
        identify.delay(signal(time), signal(time - 0.1), DT, most=0.05)


@pytest.fixture(scope="module")
def ball() -> dx.Model:
    inertia = dx.SpatialInertia.box((0.1, 0.2, 0.3), mass=2.0, com=(0.0, 0.1, 0.2))
    builder = dx.ModelBuilder().body("ball", joint=dx.Spherical(), inertia=inertia)
    return builder.body("arm", parent="ball", joint=dx.Revolute((0.0, 1.0, 0.0)), inertia=inertia).build()


def motion(count: int = 1500):
    time = DT * np.arange(count)
    angle = np.sin(2.0 * time)
    q = np.stack([np.cos(angle / 2), np.sin(angle / 2), 0 * time, 0 * time, np.cos(3.0 * time)], axis=1)
    return time, q, np.sin(time)[:, None] * np.arange(1, 5)


def test_prepared_logs_have_the_rates_of_the_motion(ball):
    """A turn about x and a swing, quaternions among the coordinates."""
    log = identify.prepare(ball, *motion(), cutoff=20.0, every=2)
    v = np.stack([2.0 * np.cos(2.0 * log.time), 0 * log.time, 0 * log.time, -3.0 * np.sin(3.0 * log.time)], axis=1)
    a = np.stack([-4.0 * np.sin(2.0 * log.time), 0 * log.time, 0 * log.time, -9.0 * np.cos(3.0 * log.time)], axis=1)
    np.testing.assert_allclose(log.v, v, atol=2e-3)
    np.testing.assert_allclose(log.a, a, atol=1e-2)
    np.testing.assert_allclose(log.tau, np.sin(log.time)[:, None] * np.arange(1, 5), atol=1e-3)
    np.testing.assert_allclose(np.diff(log.time), 2 * DT)
    np.testing.assert_allclose(jnp.linalg.norm(log.q[:, :4], axis=1), 1.0, atol=1e-12)


def test_spoilt_logs_are_refused_by_name(ball):
    def refused(match, **changed):
        given = dict(zip(("time", "q", "tau"), motion(), strict=True)) | changed
        with pytest.raises(ValueError, match=match):
            identify.prepare(ball, **given, cutoff=CUTOFF)

    time, q, tau = motion()
    later = np.arange(len(time)) >= 700
    refused(r"`tau` of joint 'ball_joint', entry 2, is not finite at sample 700, and at 800 in all",
            tau=np.where(later[:, None] & (np.arange(4) == 2), np.nan, tau))  # fmt: skip
    refused("`q` of joint 'arm_joint' is not finite", q=np.where(np.arange(5) == 4, np.inf, q))
    refused("`q` of joint 'arm_joint' is constant", q=np.where(np.arange(5) == 4, 0.3, q))
    refused("`tau` of joint 'arm_joint' is constant", tau=np.where(np.arange(4) == 3, 0.3, tau))
    refused("`time` does not grow from sample 699 to 700", time=np.where(later, time - 1.0, time))
    refused("resample it on an even clock", time=np.where(later, time + 1.0, time))
    refused(r"`q` has shape \(1500, 4\), expected \(1500, 5\)", q=q[:, :4])
    refused("the log has 40 samples", time=time[:40], q=q[:40], tau=tau[:40])
    with pytest.raises(ValueError, match="`cutoff` must lie between 0 and half the sampling rate, 125 Hz"):
        identify.butterworth(q, 200.0, DT)


@pytest.fixture(scope="module")
def swinging() -> tuple[dx.Model, tuple]:
    """An arm of two hinges with limits, and a log of what its drawing would need, friction beside it."""
    rod = dx.SpatialInertia.box((0.5, 0.05, 0.05), mass=1.0, com=(0.25, 0.0, 0.0))
    hinge = {"joint": dx.Revolute((0.0, 1.0, 0.0)), "inertia": rod, "position_limits": (-2.0, 2.0)}
    builder = dx.ModelBuilder().body("upper", **hinge)
    model = builder.body("lower", parent="upper", placement=dx.Transform.from_translation((0.5, 0, 0)), **hinge).build()
    time = DT * np.arange(1000)
    q = 0.8 * np.stack([np.sin(2.0 * time), np.cos(3.0 * time)], axis=1)
    a = -q * [4.0, 9.0]
    v = 0.8 * np.stack([2.0 * np.cos(2.0 * time), -3.0 * np.sin(3.0 * time)], axis=1)
    tau = jax.vmap(lambda *state: dx.inverse_dynamics(model, *state))(q, v, a) + 0.5 * np.sign(v)
    return model, (time, q, np.asarray(tau))


def test_other_units_are_told_by_name(swinging):
    """Each column in a unit that is wrong by a thousand, either way, and angles in degrees."""
    model, (time, q, tau) = swinging
    identify.prepare(model, time, q, tau, cutoff=CUTOFF)  # warnings are errors: there is none
    second = np.array([1.0, 1000.0])
    for factor in (second, 1.0 / second):
        with pytest.warns(UserWarning, match=r"`tau` of joint 'lower_joint' is .* times what the model needs"):
            identify.prepare(model, time, q, factor * tau, cutoff=CUTOFF)
    for factor in (second, 180.0 / np.pi):
        with pytest.raises(ValueError, match=r"`q` of joint '.*_joint' goes to .* far beyond its limits, -2 to 2"):
            identify.prepare(model, time, factor * q, tau, cutoff=CUTOFF)
    with pytest.raises(ValueError, match="`time` steps by 4 s, too slow for a filter of 5 Hz"):
        identify.prepare(model, 1e3 * time, q, tau, cutoff=CUTOFF)
    with pytest.raises(ValueError, match="is `time` in s"):
        identify.prepare(model, 1e-3 * time, q, tau, cutoff=CUTOFF)


def test_files_are_read_by_the_names_of_joints(ball, tmp_path):
    """Both kinds, with joints in another order than the model's and of several entries; and what is wrong is named."""
    time, q, tau = motion(40)
    joints, path = ["arm_joint", "ball_joint"], tmp_path / "log.npz"
    np.savez(path, time=time, q=np.roll(q, 1, axis=1), tau=np.roll(tau, 1, axis=1), joint_names=joints)
    names = [f"q/ball_joint[{k}]" for k in range(4)] + ["q/arm_joint"]
    names += [f"tau/ball_joint[{k}]" for k in range(3)] + ["tau/arm_joint"]
    columns = dict(zip(names, [*q.T, *tau.T], strict=True)) | {"time": time}
    plain, table = tmp_path / "plain.npz", tmp_path / "log.csv"
    np.savez(plain, **columns)

    def written(names, rows) -> None:
        table.write_text("\n".join(",".join(map(str, row)) for row in [names, *rows]))

    rows = np.stack(list(columns.values()), axis=1)
    written(columns, rows)
    marked = tmp_path / "marked.csv"  # as spreadsheets write it, with an empty line at the end
    marked.write_text(table.read_text() + "\n\n", encoding="utf-8-sig")
    for file in (path, plain, table, marked):
        for found, given in zip(identify.read_log(file, ball), (time, q, tau), strict=True):
            np.testing.assert_array_equal(found, given)

    def refused(match, file=table) -> None:
        with pytest.raises(ValueError, match=match):
            identify.read_log(file, ball)

    written(list(columns)[1:], rows[:, 1:])
    refused(r"log.csv: no column named 'q/ball_joint\[0\]'; did you mean one of: 'q/ball_joint")
    written(columns, [*rows[:2].tolist(), ["stuck", *rows[2, 1:].tolist()]])
    refused(r"column 'q/ball_joint\[0\]' is 'stuck' in line 4, not a number")
    written(columns, [*rows[:2].tolist(), rows[2, 1:].tolist()])
    refused("line 4 has 9 entries for 10 columns")
    written([*list(columns)[:-1], "tau/arm_joint"], rows)
    refused("column 'tau/arm_joint' stands there twice")
    np.savez(plain, **columns | {"tau/arm_joint": time[1:]})
    refused(r"'tau/arm_joint' has shape \(39,\), and `time` \(40,\)", plain)
    np.savez(path, time=time, q=q, tau=tau, joint_names=["arm", "ball_joint"])
    refused("`joint_names`: no joint named 'arm'; did you mean one of: .*'arm_joint'", path)
    np.savez(path, time=time, q=q, tau=tau, joint_names=joints[:1])
    refused(r"`q` has shape \(40, 5\), expected \(T, 1\)", path)

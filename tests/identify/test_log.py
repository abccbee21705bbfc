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


def test_turns_beyond_a_half_and_quaternions_of_either_sign(ball, rng):
    """Three whole turns, as a log of a body in the air has them."""
    time, q, tau = motion()
    angle = 20.0 * time / time[-1]
    q[:, 0], q[:, 1] = np.cos(angle / 2), np.sin(angle / 2)
    q[:, :4] *= rng.choice([-1.0, 1.0], len(time))[:, None]
    log = identify.prepare(ball, time, q, tau, cutoff=20.0)
    np.testing.assert_allclose(log.v[:, 0], 20.0 / time[-1], atol=1e-4)
    np.testing.assert_allclose(log.a[:, :3], 0.0, atol=1e-2)


def test_what_is_lost_is_put_in_again(ball, rng):
    """A tenth of the samples, of each row some columns alone, with stamps that shake, forces by another clock, and a
    message that came twice: what a motion of a hertz has between samples is a parabola to 1e-5."""
    clock = lambda dt: np.sort(np.arange(0.0, 6.0, dt) + 0.2 * dt * rng.uniform(-1.0, 1.0, round(6.0 / dt)))  # noqa: E731

    def at(time):
        angle = np.sin(2.0 * time)
        q = np.stack([np.cos(angle / 2), np.sin(angle / 2), 0 * time, 0 * time, np.cos(3.0 * time)], axis=1)
        return q, np.sin(time)[:, None] * np.arange(1, 5)

    time, own = clock(0.004), clock(0.01)
    (q, _), (_, tau) = at(time), at(own)
    q[rng.random(q.shape) < 0.02], tau[rng.random(tau.shape) < 0.02] = np.nan, np.inf
    q[:, :4] *= rng.choice([-1.0, 1.0], len(time))[:, None]
    twice = np.sort(np.append(np.arange(len(time)), [70, 700]))
    even, found, forces = identify.resample(ball, time[twice], q[twice], tau, most=0.05, step=0.004, tau_time=own)
    np.testing.assert_allclose(np.diff(even), 0.004, rtol=1e-9)
    assert 5.9 < even[-1] - even[0] < 6.0
    wanted, pushed = at(even)
    wanted[:, :4] *= np.sign(np.sum(wanted * found, axis=1, where=np.arange(5) < 4))[:, None]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    np.testing.assert_allclose(forces, pushed, atol=1e-5)
    identify.prepare(ball, even, found, forces, cutoff=20.0)

    for same, given in zip(identify.resample(ball, *motion(), most=0.05), motion(), strict=True):
        np.testing.assert_allclose(same, given, atol=1e-12)

    def refused(match, **changed):
        given = dict(zip(("time", "q", "tau"), motion(), strict=True)) | {"most": 0.05} | changed
        with pytest.raises(ValueError, match=match):
            identify.resample(ball, **given)

    time, q, tau = motion()
    gone = np.abs(np.arange(len(time)) - 700) < 10
    refused("`tau` of joint 'arm_joint' has a gap of 0.08 s after sample 690, at 2.76 s, longer than `most`, 0.05 s",
            tau=np.where(gone[:, None] & (np.arange(4) == 3), np.nan, tau))  # fmt: skip
    refused("`q` has a gap of 0.08 s after sample 690", time=time[~gone], q=q[~gone], tau=tau[~gone])
    refused("`time` goes back from sample 699 to 700", time=np.where(np.arange(1500) < 700, time, time - 1.0))
    refused(r"`tau` has shape \(1499, 4\), expected \(1500, 4\): a row for each of `time`", tau=tau[1:])
    refused("`q` has 0 samples, expected three", q=np.nan * q)
    refused("`step` is 7 s, for what `q` and `tau` have together, 0 s to 5.996 s", step=7.0)


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
    refused("by 1.004 s from sample 699, .* put it on an even clock by `identify.resample`",
            time=np.where(later, time + 1.0, time))  # fmt: skip
    refused(r"`q` has shape \(1500, 4\), expected \(1500, 5\)", q=q[:, :4])
    refused(r"`q` of joint 'arm_joint' jumps by 6.27 from sample 699 to 700: does its encoder start again",
            q=q + 2 * np.pi * (later[:, None] & (np.arange(5) == 4)))  # fmt: skip
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
    gap = tmp_path / "gap.csv"  # a cell that the logger left empty
    gap.write_text(table.read_text().replace(f",{q[7, 4]},", ",,"))
    assert np.argwhere(np.isnan(identify.read_log(gap, ball)[1])).tolist() == [[7, 4]]
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

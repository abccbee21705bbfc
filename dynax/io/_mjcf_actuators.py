"""MuJoCo's actuators as ours: which can be read, and of those that can, laws and transmissions in groups of one kind.

transmission: joint, joint in parent (hinges and slides), fixed tendon, site
dynamics:     none, integrator, filter, exact filter, muscle
gain, bias:   fixed or affine, none or affine; muscle, none or muscle
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from dynax.actuate.actuators import Actuators
from dynax.actuate.lag import Filtered, Integrated
from dynax.actuate.law import AbstractActuator, Affine
from dynax.actuate.limits import CommandLimited, ForceLimited
from dynax.actuate.muscle import MuscleActivated, MuscleForce
from dynax.actuate.transmission import (
    AbstractTransmission,
    CoupledTransmission,
    FrameTransmission,
    JointTransmission,
)
from dynax.io._mjcf_compile import import_mujoco
from dynax.io._mujoco_names import HINGE, SLIDE, body_names, frame_of_site, joint_names, keyframe_names
from dynax.model import Model
from dynax.model.structure import close_names

LEAST = 1e-15
"""MuJoCo's smallest divisor (`mjMINVAL`)."""


def actuator_name(m: Any, k: int) -> str:
    return m.actuator(k).name or f"actuator_{k}"


def count(m: Any) -> int:
    """Of actuators; since MuJoCo 4 one may have several controls."""
    return len(m.actuator_trntype)


def unsupported(m: Any, k: int) -> str | None:
    """Why actuator `k` of a compiled model cannot be read; `None` if it can."""
    e = import_mujoco()
    trn, gain, bias = int(m.actuator_trntype[k]), int(m.actuator_gaintype[k]), int(m.actuator_biastype[k])
    dyn, (first, second), group = int(m.actuator_dyntype[k]), m.actuator_trnid[k], int(m.actuator_group[k])
    if int(m.opt.disableflags) & int(e.mjtDisableBit.mjDSBL_ACTUATION):
        return "a flag of the file switches all of them off"
    if group in range(31) and int(m.opt.disableactuator) & 1 << group:
        return f"the file switches off its group {group} (actuatorgroupdisable)"
    if trn in (e.mjtTrn.mjTRN_JOINT, e.mjtTrn.mjTRN_JOINTINPARENT):
        if m.jnt_type[first] not in (SLIDE, HINGE):
            return "it moves a ball or a free joint"
    elif trn == e.mjtTrn.mjTRN_TENDON:
        if not _fixed(m, first):
            return "its tendon is spatial"
        sharing = (m.actuator_trntype == trn) & (m.actuator_trnid[:, 0] == first)
        if _tendon_limits(m, first) is not None and np.count_nonzero(sharing) > 1:
            return "its tendon limits the force of several actuators together"
    elif trn == e.mjtTrn.mjTRN_SITE:
        if second >= 0:
            return "its site moves against a reference site"
        if not m.site(int(first)).name:
            return "its site has no name"
    else:
        return f"its transmission {_label(e.mjtTrn, trn)} is another"
    if hasattr(m, "actuator_ctrlnum") and m.actuator_ctrlnum[k] != 1:
        return "it has several controls, or none"
    muscle = gain == e.mjtGain.mjGAIN_MUSCLE
    if gain not in (e.mjtGain.mjGAIN_FIXED, e.mjtGain.mjGAIN_AFFINE, e.mjtGain.mjGAIN_MUSCLE):
        return f"its gain {_label(e.mjtGain, gain)} is another"
    allowed = (e.mjtBias.mjBIAS_MUSCLE,) if muscle else (e.mjtBias.mjBIAS_AFFINE,)
    if bias not in (e.mjtBias.mjBIAS_NONE, *allowed):
        return f"its bias {_label(e.mjtBias, bias)} does not go with its gain"
    if muscle and bias == e.mjtBias.mjBIAS_MUSCLE and np.any(m.actuator_biasprm[k, :9] != m.actuator_gainprm[k, :9]):
        return "its gain and its bias are of different muscles"
    dynamics = (e.mjtDyn.mjDYN_NONE, e.mjtDyn.mjDYN_INTEGRATOR, e.mjtDyn.mjDYN_FILTER, e.mjtDyn.mjDYN_FILTEREXACT)
    if dyn not in (*dynamics, e.mjtDyn.mjDYN_MUSCLE):
        return f"its dynamics {_label(e.mjtDyn, dyn)} is another"
    if m.actuator_actnum[k] > 1:
        return "it has several activations"
    if m.actuator_actearly[k]:
        return "its activation acts in the step in which it changes (actearly)"
    if hasattr(m, "actuator_delay") and m.actuator_delay[k]:
        return "it has a delay in seconds; wrap its law in actuate.Delayed"
    if m.nplugin and m.actuator_plugin[k] >= 0:
        return "it is a plugin"
    return None


def read_actuators(m: Any, model: Model, keyframe: str | None = None) -> Actuators:
    """All actuators that can be read, in the order of the file; `model` has the file's joints and sites by name."""
    readable = [k for k in range(count(m)) if unsupported(m, k) is None]
    groups: dict[tuple, list[int]] = {}
    for k in readable:
        groups.setdefault(_kind(m, k), []).append(k)
    place = {k: row for row, k in enumerate(readable)}
    found = Actuators(
        tuple(_law(m, group) for group in groups.values()),
        tuple(_transmission(m, group) for group in groups.values()),
        tuple(actuator_name(m, k) for k in readable),
        tuple(tuple(place[k] for k in group) for group in groups.values()),
        effort_limits=_effort_limits(m, model),
        compensation=_compensation(m, model),
    )
    return found if keyframe is None else found.starting(_activations(m, found, list(groups.values()), keyframe))


def _activations(m: Any, actuators: Actuators, groups: list[list[int]], keyframe: str) -> tuple:
    """The state in a keyframe: each group has one activation for each actuator, or none."""
    names = keyframe_names(m)
    if keyframe not in names:
        raise KeyError(close_names(keyframe, names, "keyframe"))
    act = m.key_act[names.index(keyframe)]
    return tuple(
        jax.tree.map(lambda _, rows=m.actuator_actadr[group]: act[rows], state)
        for state, group in zip(actuators.initial(), groups, strict=True)
    )


def mixed_compensation(m: Any) -> list[str]:
    """Bodies welded together with different gravity compensation, by the name of the first."""
    names, found = body_names(m), []
    for root, parts in _welded(m).items():
        if len({float(m.body_gravcomp[b]) for b in parts if m.body_mass[b] > 0}) > 1:
            found.append(names[root])
    return found


def _kind(m: Any, k: int) -> tuple:
    """Actuators of the same kind share a law."""
    trn = int(m.actuator_trntype[k])
    muscle = m.actuator_gaintype[k] == import_mujoco().mjtGain.mjGAIN_MUSCLE
    width = muscle_width(m, k) > 0 if m.actuator_dyntype[k] == import_mujoco().mjtDyn.mjDYN_MUSCLE else False
    return (0 if trn == 1 else trn), int(m.actuator_dyntype[k]), bool(muscle), bool(width)


def muscle_width(m: Any, k: int) -> float:
    width = float(m.actuator_dynprm[k, 2])
    return 0.0 if width < LEAST else width


def _law(m: Any, group: Sequence[int]) -> AbstractActuator:
    """From the force outwards: what limits it, what its input goes through, what limits the control."""
    e, rows = import_mujoco(), np.array(group)
    _, dyn, muscle, width = _kind(m, group[0])
    law: AbstractActuator = _muscle(m, rows) if muscle else _affine(m, rows)
    low, high = _range(m.actuator_forcelimited[rows], m.actuator_forcerange[rows])
    for j, k in enumerate(group):
        tendon = int(m.actuator_trnid[k, 0])
        limits = _tendon_limits(m, tendon) if m.actuator_trntype[k] == e.mjtTrn.mjTRN_TENDON else None
        if limits is not None:
            low[j], high[j] = np.clip(limits, low[j], high[j])
    if np.any(np.isfinite([low, high])):
        law = ForceLimited(law, low, high)
    acting = tuple(_range(m.actuator_actlimited[rows], m.actuator_actrange[rows]))
    limits = acting if np.any(np.isfinite(acting)) else None
    constant = np.maximum(m.actuator_dynprm[rows, 0], LEAST)
    if dyn == e.mjtDyn.mjDYN_INTEGRATOR:
        law = Integrated(law, limits=limits)
    elif dyn in (e.mjtDyn.mjDYN_FILTER, e.mjtDyn.mjDYN_FILTEREXACT):
        law = Filtered(law, constant, exact=dyn == e.mjtDyn.mjDYN_FILTEREXACT, limits=limits)
    elif dyn == e.mjtDyn.mjDYN_MUSCLE:
        fall, smooth = m.actuator_dynprm[rows, 1].copy(), m.actuator_dynprm[rows, 2].copy()
        law = MuscleActivated(law, constant, fall, smooth if width else None, limits)
    clamped = not int(m.opt.disableflags) & int(e.mjtDisableBit.mjDSBL_CLAMPCTRL)
    low, high = _range(m.actuator_ctrllimited[_controls(m)[rows]], m.actuator_ctrlrange[_controls(m)[rows]])
    return CommandLimited(law, low, high) if clamped and np.any(np.isfinite([low, high])) else law


def _controls(m: Any) -> np.ndarray:
    """Where each actuator's control stands."""
    return np.array(m.actuator_ctrladr) if hasattr(m, "actuator_ctrladr") else np.arange(m.nu)


def _affine(m: Any, rows: np.ndarray) -> Affine:
    e = import_mujoco()
    gain, bias = m.actuator_gainprm[rows, :3].T.copy(), m.actuator_biasprm[rows, :3].T.copy()
    gain[1:, m.actuator_gaintype[rows] == e.mjtGain.mjGAIN_FIXED] = 0.0
    bias[:, m.actuator_biastype[rows] == e.mjtBias.mjBIAS_NONE] = 0.0
    return Affine(gain, bias)


def _muscle(m: Any, rows: np.ndarray) -> MuscleForce:
    e = import_mujoco()
    l0, l1, force, scale, l_min, l_max, v_max, passive, eccentric = m.actuator_gainprm[rows, :9].T.copy()
    peak = np.where(force < 0, scale / np.maximum(LEAST, m.actuator_acc0[rows]), force)
    passive = np.where(m.actuator_biastype[rows] == e.mjtBias.mjBIAS_NONE, 0.0, passive)
    lengths = m.actuator_lengthrange[rows].T.copy()
    return MuscleForce(peak, lengths, np.stack([l0, l1]), l_min, l_max, v_max, passive, eccentric)


def _transmission(m: Any, group: Sequence[int]) -> AbstractTransmission:
    e, rows = import_mujoco(), np.array(group)
    trn, names = int(m.actuator_trntype[group[0]]), joint_names(m)
    of, gear = m.actuator_trnid[rows, 0], m.actuator_gear[rows].copy()
    if trn == e.mjtTrn.mjTRN_TENDON:
        parts = [_wraps(m, int(t)) for t in of]
        joints = sorted({joint for part in parts for joint in part})
        matrix = np.array([[part.get(joint, 0.0) for joint in joints] for part in parts])
        return CoupledTransmission(gear[:, :1] * matrix, tuple(names[j] for j in joints))
    if trn == e.mjtTrn.mjTRN_SITE:
        frames = tuple(frame_of_site(m, int(s)) for s in of)
        return FrameTransmission(np.concatenate([gear[:, 3:], gear[:, :3]], 1), frames)
    return JointTransmission(gear[:, 0].copy(), tuple(names[j] for j in of))


def _fixed(m: Any, tendon: int) -> bool:
    start = m.tendon_adr[tendon]
    return bool(np.all(m.wrap_type[start : start + m.tendon_num[tendon]] == import_mujoco().mjtWrap.mjWRAP_JOINT))


def _wraps(m: Any, tendon: int) -> dict[int, float]:
    """Of a fixed tendon, its coefficients by joint."""
    own, found = slice(m.tendon_adr[tendon], m.tendon_adr[tendon] + m.tendon_num[tendon]), {}
    for joint, coefficient in zip(m.wrap_objid[own], m.wrap_prm[own], strict=True):
        found[int(joint)] = found.get(int(joint), 0.0) + float(coefficient)
    return found


def _tendon_limits(m: Any, tendon: int) -> np.ndarray | None:
    limited = hasattr(m, "tendon_actfrclimited") and m.tendon_actfrclimited[tendon]
    return m.tendon_actfrcrange[tendon] if limited else None


def _range(limited: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Lower and upper limits, infinite where there are none, shape `(2, k)`."""
    return np.where(limited.astype(bool), given.T, np.array([[-np.inf], [np.inf]]))


def _effort_limits(m: Any, model: Model) -> np.ndarray | None:
    """Of what each joint gets from all actuators together; the model's own are symmetric."""
    if not np.any(m.jnt_actfrclimited):
        return None
    limits = np.tile([-np.inf, np.inf], (model.nv, 1))
    for j, name in enumerate(joint_names(m)):
        if m.jnt_actfrclimited[j]:
            limits[model.v_slice(name)] = m.jnt_actfrcrange[j]
    return limits


def _welded(m: Any) -> dict[int, list[int]]:
    """By the body that a joint moves, the bodies that move with it; a mocap body is moved by none."""
    found: dict[int, list[int]] = {}
    for b in range(1, m.nbody):
        root = int(m.body_weldid[b])
        if root and m.body_jntnum[root]:
            found.setdefault(root, []).append(b)
    return found


def _compensation(m: Any, model: Model) -> np.ndarray | None:
    """For each body of the model what MuJoCo compensates of its weight: the mean over what is welded together."""
    if not np.any(m.body_gravcomp):
        return None
    names, part = body_names(m), np.zeros(model.num_bodies)
    for root, parts in _welded(m).items():
        mass = m.body_mass[parts]
        if np.sum(mass) > 0:
            part[model.body_index(names[root])] = np.sum(mass * m.body_gravcomp[parts]) / np.sum(mass)
    return part


def _label(enum: Any, value: int) -> str:
    return str(enum(value)).rsplit("_", 1)[-1].lower()

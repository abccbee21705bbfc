"""MuJoCo's equality constraints as loops and gears.

| in the file | here |
|---|---|
| `connect` | a loop closed by a ball joint |
| `weld` | a loop closed by a weld; by a ball joint where `torquescale` is zero |
| `joint`, linear in another joint | a gear, its ratio a leaf of the model |
| `joint`, of a higher power | a gear that follows a polynomial |
| `joint` alone | a joint that is held: a gear without a source |
| switched off, on tendons, on flexible bodies | reported |

MuJoCo's are soft (`solref`, `solimp`), these are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dynax.io._mjcf_pose import pose_of
from dynax.io._mujoco_names import unused
from dynax.io._polynomial import Polynomial
from dynax.joints import Spherical, Weld
from dynax.model.builder import ModelBuilder
from dynax.spatial import Transform

_CONNECT, _WELD, _JOINT, _TENDON = range(4)
_BODY_OBJECT = 1
_NO_TURN = np.array([1.0, 0.0, 0.0, 0.0])


def add_equalities(builder: ModelBuilder, m: Any, bodies: list[str], joints: list[str], *, off: bool) -> None:
    """Loops and gears of the compiled model `m`, whose bodies and joints have the names given here.

    `off`: the file's flags switch all of them off.
    """
    if off and m.neq:
        builder.note("equality", f"{m.neq} constraints are switched off by a flag of the file; ignored")
        return
    before, taken = len(builder.loops) + len(builder.gears), frozenset(joints)
    for e in range(m.neq):
        kind, label = int(m.eq_type[e]), f"equality {m.equality(e).name or e!r}"
        if not m.eq_active0[e]:
            builder.note(label, "is switched off in the file; ignored")
        elif kind == _JOINT:
            _gear(builder, m, e, joints, label)
        elif kind in (_CONNECT, _WELD):
            _loop(builder, m, e, bodies, taken, label)
        else:
            builder.note(label, f"is on {'tendons' if kind == _TENDON else 'a flexible body'}; not enforced")
    count = len(builder.loops) + len(builder.gears) - before
    if count:
        builder.note("equality", f"{count} constraints, soft in MuJoCo, are exact here: solref and solimp are not used")


def _loop(builder: ModelBuilder, m: Any, e: int, bodies: list[str], taken: frozenset[str], label: str) -> None:
    (one, pose_one), (two, pose_two) = (_end(m, e, first) for first in (True, False))
    if _carrier(m, one) == _carrier(m, two):
        builder.note(label, f"ties {bodies[one]!r} and {bodies[two]!r}, which do not move against one another; ignored")
        return
    # A weld whose rotational part has no weight holds a point.
    rigid = m.eq_type[e] == _WELD and m.eq_data[e, 10] != 0.0
    builder.loop(
        unused(m.equality(e).name or f"equality_{e}", builder.loops, taken),
        predecessor=bodies[one],
        successor=bodies[two],
        joint=Weld() if rigid else Spherical(),
        predecessor_placement=pose_one,
        successor_placement=pose_two,
    )


def _end(m: Any, e: int, first: bool) -> tuple[int, Transform]:
    """The body of one end of a connect or weld, and the frame in it that is to meet the other one."""
    k, data = int((m.eq_obj1id if first else m.eq_obj2id)[e]), m.eq_data[e]
    if m.eq_objtype[e] != _BODY_OBJECT:
        return int(m.site_bodyid[k]), pose_of(m.site_quat[k], m.site_pos[k])
    if m.eq_type[e] == _CONNECT:
        return k, pose_of(_NO_TURN, data[:3] if first else data[3:6])
    return k, pose_of(data[6:10], data[3:6]) if first else pose_of(_NO_TURN, data[:3])


def _carrier(m: Any, body: int) -> int:
    """The body that moves, or the world, to which one without joints is fixed."""
    while body and not m.body_jntnum[body]:
        body = int(m.body_parentid[body])
    return body


def _gear(builder: ModelBuilder, m: Any, e: int, joints: list[str], label: str) -> None:
    """`y - y0 = a0 + a1 (x - x0) + .. + a4 (x - x0)^4`, where `x0` and `y0` are the joints' `qpos0`."""
    one, two, powers = int(m.eq_obj1id[e]), int(m.eq_obj2id[e]), m.eq_data[e, :5]
    y0 = m.qpos0[m.jnt_qposadr[one]]
    if two < 0:
        sources, ratio, offset, function = (), 1.0, y0 + powers[0], None
    else:
        x0, sources = m.qpos0[m.jnt_qposadr[two]], (joints[two],)
        if powers[2:].any():
            ratio, offset = 1.0, y0 + powers[0]
            function = Polynomial((0.0, *(float(a) for a in np.trim_zeros(powers[1:], "b"))), float(x0))
        else:
            ratio, offset, function = powers[1], y0 + powers[0] - powers[1] * x0, None
    follower = joints[one]
    if follower in builder.gears and sources and function is None and ratio and sources[0] not in builder.gears:
        # A joint follows one gear only; this one can be read the other way round.
        follower, sources, ratio, offset = sources[0], (follower,), 1.0 / ratio, -offset / ratio
    if follower in builder.gears:
        builder.note(label, f"joint {follower!r} follows another constraint already; not enforced")
        return
    builder.gear(follower, sources, ratio=ratio, offset=offset, function=function)

"""Names and facts of a compiled MuJoCo model, the same for the reader of MJCF and the converter of states.

Nothing here imports MuJoCo: its model object brings all that is needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

FREE, BALL, SLIDE, HINGE = range(4)
"""MuJoCo's types of joint (`mjtJoint`)."""


def body_names(mj_model: Any) -> list[str]:
    """One name per MuJoCo body: its own, or `body_<number>`; the first is `"world"`."""
    return _filled((mj_model.body(b).name for b in range(mj_model.nbody)), [f"body_{b}" for b in range(mj_model.nbody)])


def joint_names(mj_model: Any) -> list[str]:
    """One name per MuJoCo joint: its own, or `<body>_joint`, with its place there if the body has several."""
    bodies, defaults = body_names(mj_model), []
    for j in range(mj_model.njnt):
        b = int(mj_model.jnt_bodyid[j])
        place = j - int(mj_model.body_jntadr[b]) + 1
        defaults.append(f"{bodies[b]}_joint" + (f"_{place}" if mj_model.body_jntnum[b] > 1 else ""))
    return _filled((mj_model.joint(j).name for j in range(mj_model.njnt)), defaults)


def keyframe_names(mj_model: Any) -> list[str]:
    """One name per keyframe: its own, or `key_<number>`."""
    return [mj_model.key(k).name or f"key_{k}" for k in range(mj_model.nkey)]


def frame_of_site(mj_model: Any, site: int) -> str:
    """The name of the frame that a site with a name is here."""
    return unused(mj_model.site(site).name, ("world", *body_names(mj_model)))


def unused(name: str, *taken: Collection[str]) -> str:
    """`name`, with as many underscores behind as make it new; what is `taken` finds a name at once, as sets do."""
    while any(name in names for names in taken):
        name += "_"
    return name


def _filled(names: Iterable[str], defaults: list[str]) -> list[str]:
    """Defaults where a name is empty, made different from all others."""
    given = list(names)
    taken = set(given)
    for k, name in enumerate(given):
        if not name:
            given[k] = unused(defaults[k], taken)
            taken.add(given[k])
    return given


def actuators_on_joints(mj_model: Any) -> list[tuple[int, slice, float]]:
    """Actuators with rotor inertia or friction of their own (MuJoCo 4) on joints: row, freedoms, and gear, of which
    MuJoCo takes the first number for all freedoms of a ball or a free joint."""
    found = []
    for a in with_rotors(mj_model):
        if mj_model.actuator_trntype[a] in (0, 1):  # joint, joint in parent
            joint = int(mj_model.actuator_trnid[a, 0])
            first, size = int(mj_model.jnt_dofadr[joint]), {FREE: 6, BALL: 3}.get(int(mj_model.jnt_type[joint]), 1)
            found.append((a, slice(first, first + size), float(mj_model.actuator_gear[a, 0])))
    return found


def with_rotors(mj_model: Any) -> list[int]:
    """Actuators with rotor inertia or friction of their own."""
    fields = "actuator_armature", "actuator_damping", "actuator_dampingpoly"
    return [a for a in range(len(mj_model.actuator_trntype)) if any(says(mj_model, field, a) for field in fields)]


def says(mj_model: Any, field: str, row: int) -> bool:
    """Whether a field that only newer versions of MuJoCo have says something in this row."""
    return hasattr(mj_model, field) and bool(getattr(mj_model, field)[row].any())

"""What MuJoCo's `solref` and `solimp` say, as stiffness and damping.

MuJoCo makes an acceleration `a1` of the `a0` that there would be without the constraint, `r` deep in it,

    a1 + d (b r' + k r) = (1 - d) a0        b = 2 / (dmax T)        k = d / (dmax T zeta)^2

with `solref = (T, zeta)`, and the impedance `d` between 0 and 1 that `solimp` makes of `r`; at `d = dmax` the left side
is that of a spring and a damper on the mass `m` that the constraint feels,

    K = m / (T zeta)^2        D = 2 m / T        and for solref = (-k, -b) in the place of it    K = m k,  D = m b.

So motion has the same frequency, and what comes keeps the same part of its speed. What rests sinks in by `m a0 / K`
here, and there by `1 - dmax` times that, 0.05 to 0.1 of it: there the weight itself is made less.
`m` is the one MuJoCo takes, in its reference configuration (`invweight0`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dynax.contact.ends import Cone, Rope
from dynax.contact.material import Material
from dynax.io._elements import Elements
from dynax.io._mjcf_compile import import_mujoco
from dynax.io._mujoco_names import BALL, frame_of_site, joint_names


def spring(m: Any, solref: np.ndarray, mobility: float) -> Material:
    """Stiffness and damping of a constraint with that velocity of a unit impulse; none for what cannot move."""
    if mobility <= 0:
        return Material()
    mass, (one, other) = 1.0 / mobility, (float(x) for x in solref[:2])
    if one <= 0:
        return Material(stiffness=-mass * one, damping=-mass * other)
    if not m.opt.disableflags & int(import_mujoco().mjtDisableBit.mjDSBL_REFSAFE):
        one = max(one, 2.0 * float(m.opt.timestep))
    return Material(stiffness=mass / (one * other) ** 2, damping=2.0 * mass / one)


def contact_spring(m: Any, a: int, b: int, pair: int | None = None) -> Material:
    """Of two geoms, by the rules of MuJoCo's pairs: the one of higher priority, or their mean by `solmix`."""
    mobility = sum(float(m.body_invweight0[m.geom_bodyid[g], 0]) for g in (a, b))
    return spring(m, _reference(m, a, b, pair), mobility)


def overridden(m: Any) -> bool:
    """Whether the file says one friction and one `solref` for all contacts."""
    return bool(m.opt.enableflags & int(import_mujoco().mjtEnableBit.mjENBL_OVERRIDE))


def _reference(m: Any, a: int, b: int, pair: int | None) -> np.ndarray:
    one, other = m.geom_solref[a], m.geom_solref[b]
    if overridden(m):
        return m.opt.o_solref
    if pair is not None:
        return m.pair_solref[pair]
    if m.geom_priority[a] != m.geom_priority[b]:
        return one if m.geom_priority[a] > m.geom_priority[b] else other
    if one[0] <= 0 or other[0] <= 0:
        return np.minimum(one, other)
    weights, least = (float(m.geom_solmix[g]) for g in (a, b)), 1e-15
    first, second = (max(w, least) for w in weights)
    return (first * one + second * other) / (first + second)


def add_stops(found: Elements, m: Any) -> None:
    """Limits of joints with their springs, cones of ball joints, and tendons that are ropes."""
    names, off = joint_names(m), import_mujoco().mjtDisableBit
    if m.opt.disableflags & int(off.mjDSBL_LIMIT | off.mjDSBL_CONSTRAINT):
        if np.any(m.jnt_limited) or np.any(m.tendon_limited):
            found.note("limit", "a flag of the file switches limits of joints and tendons off; they are left out")
        found.limited = False
        return
    for j in np.flatnonzero(m.jnt_limited):
        mobility = float(m.dof_invweight0[m.jnt_dofadr[j]])
        own = spring(m, m.jnt_solref[j], mobility)
        if m.jnt_type[j] == BALL:
            found.stops.append(Cone(names[j], float(np.max(m.jnt_range[j])), own))
        else:
            found.limits[names[j]] = own
    for t in np.flatnonzero(m.tendon_limited):
        points, name = _through_sites(m, int(t)), m.tendon(t).name or f"tendon_{t}"
        if points is None:
            found.note(f"tendon {name!r}", "its limits are left out: only of tendons through named sites they are kept")
            continue
        low, high = (float(x) for x in m.tendon_range[t])
        if low > 0:
            found.note(f"tendon {name!r}", f"its least length {low:g} is left out: a rope has none")
        own = spring(m, m.tendon_solref_lim[t], float(m.tendon_invweight0[t]))
        found.stops.append(Rope(points, high, material=own))


def _through_sites(m: Any, t: int) -> tuple[str, ...] | None:
    first, kinds = int(m.tendon_adr[t]), import_mujoco().mjtWrap
    rows = range(first, first + int(m.tendon_num[t]))
    sites = [int(m.wrap_objid[k]) for k in rows]
    if any(m.wrap_type[k] != kinds.mjWRAP_SITE for k in rows) or not all(m.site(s).name for s in sites):
        return None
    return tuple(frame_of_site(m, s) for s in sites)

"""Write the table of docs/contact.md that compares the accuracy of contact with MuJoCo's.

python docs/make_contact.py     some minutes; needs `mujoco`
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import dynax as dx
from dynax import contact
from dynax.simulate import Compliant, run_events

PAGE = Path(__file__).resolve().parent / "contact.md"
BEGIN, END = "<!-- written by docs/make_contact.py -->\n", "<!-- end -->\n"
G = 9.81
Row = tuple[str, dict[str, str]]
ANGLE = np.deg2rad(26.0)
BLOCK = """<mujoco><option timestep="{dt}" gravity="{x} 0 {z}" cone="elliptic" impratio="{ratio}" {more}/><worldbody>
  <geom type="plane" size="1 1 1" friction="0.5"/><body pos="0 0 0.1"><freejoint/>
  <geom type="box" size="0.2 0.2 0.1" mass="1" friction="0.5"/></body></worldbody></mujoco>"""
BALL = """<mujoco><option timestep="{dt}" integrator="{integrator}"/><worldbody>
  <geom type="plane" size="1 1 1" condim="1" {solref}/><body pos="0 0 {z}"><joint type="slide" axis="0 0 1"/>
  <geom size="0.1" mass="1" condim="1" {solref}/></body></worldbody></mujoco>"""
HIT = """<mujoco><option timestep="0.002" gravity="0 0 0" cone="elliptic"/><worldbody>
  <body><freejoint/><geom type="box" size="0.2 0.3 0.1" mass="3"/></body>
  <body pos="-0.5 0.1 0.05"><freejoint/><geom size="0.1" mass="1"/></body></worldbody></mujoco>"""


def peer(text: str, steps: int, velocity: dict[int, float] | None = None) -> tuple[np.ndarray, mujoco.MjModel]:
    """Heights of MuJoCo's run: `qpos` by step."""
    m = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(m)
    for k, speed in (velocity or {}).items():
        data.qvel[k] = speed
    rows = []
    for _ in range(steps):
        mujoco.mj_step(m, data)
        rows.append(np.concatenate([data.qpos, data.qvel]))
    return np.array(rows), m


@partial(jax.jit, static_argnames=("steps", "stepper"))
def run(scene, q, v, dt, steps, stepper="semi_implicit"):
    return dx.rollout(scene, q, v, jnp.zeros((steps, scene.nv)), dt, stepper=stepper)


def slope() -> Row:
    """How far a block creeps in 10 s on a slope of 26 degrees, below the angle of friction of 26.57 [m]."""
    x, z = G * np.sin(ANGLE), -G * np.cos(ANGLE)
    text = partial(BLOCK.format, dt=0.005, x=x, z=z)
    scene = dx.load_scene(text(ratio=1, more=""))
    start = dx.neutral(scene.model).at[2].set(0.1)
    found = {}
    for name, dt, stepper in (("steps", 0.005, "semi_implicit"), ("compliant", 5e-4, Compliant())):
        motion = run(scene, start, jnp.zeros(6), dt, round(10 / dt), stepper)
        settled = motion.q[len(motion.q) // 10]  # what yields settles first
        found[name] = f"{float(jnp.linalg.norm(motion.q[-1, :2] - settled[:2])):.1e}"
    for name, ratio, more in (("MuJoCo", 1, ""), ("MuJoCo, tuned", 100, 'noslip_iterations="10"')):
        rows, _ = peer(text(ratio=ratio, more=more), 2000)
        found[name] = f"{np.linalg.norm(rows[-1, :2] - rows[200, :2]):.1e}"
    return "a block creeps on a slope, from 1 s to 10 s [m]", found


def elastic() -> Row:
    """The energy that an elastic ball, dropped from 0.5 m, has lost or gained after 3 s, as a part."""
    scene = dx.load_scene(BALL.format(dt=0.001, integrator="Euler", z=0.6, solref=""))
    first = G * 0.5

    def part(height, speed):
        return f"{(G * height + 0.5 * speed**2) / first - 1:+.1e}"

    bouncing = contact.scene(scene.model, [
        contact.Collider("world", contact.Plane(), material=contact.Material(restitution=1.0)),
        contact.Collider(scene.model.body_names[0], contact.Sphere(0.1)),
    ])  # fmt: skip
    hard = contact.scene(scene.model, [
        contact.Collider("world", contact.Plane(), material=contact.Material(stiffness=1e5, dissipation=0.0)),
        contact.Collider(scene.model.body_names[0], contact.Sphere(0.1)),
    ])  # fmt: skip
    found = {}
    # The joint's coordinate begins at zero with the ball 0.5 m above the ground.
    for name, own, dt, stepper in (
        ("steps", bouncing, 0.001, "semi_implicit"),
        ("compliant", hard, 2e-4, Compliant("rk4")),
    ):
        motion = run(own, jnp.zeros(1), jnp.zeros(1), dt, round(3 / dt), stepper)
        found[name] = part(float(motion.q[-1, 0]) + 0.5, float(motion.v[-1, 0]))

    def fall(state, h):
        z, v = state
        return z + h * v - 0.5 * G * h * h, v - G * h

    exact = run_events(fall, lambda s: s[0][None], lambda s, _: (s[0], -s[1]), (0.5, 0.0), 3.0, 0.05, budget=100)
    found["events"] = part(float(exact.state[0]), float(exact.state[1]))
    undamped = 'solref="-100000 0" solimp="0.99 0.99 0.001"'
    for name, dt, integrator in (("MuJoCo", 0.001, "Euler"), ("MuJoCo, tuned", 2e-4, "RK4")):
        rows, _ = peer(BALL.format(dt=dt, integrator=integrator, z=0.6, solref=undamped), round(3 / dt))
        found[name] = part(rows[-1, 0] + 0.5, rows[-1, 1])
    return "energy of an elastic ball after 3 s, gained or lost", found


def momentum() -> Row:
    """Linear momentum that is lost when a ball hits a box, of 2 N s."""
    scene = dx.load_scene(HIT)
    q = dx.neutral(scene.model).at[7:10].set(jnp.array([-0.5, 0.1, 0.05]))
    v = jnp.zeros(12).at[9].set(2.0)
    found = {}
    for name, stepper, dt in (("steps", "semi_implicit", 0.002), ("compliant", Compliant(), 0.0005)):
        motion = run(scene, q, v, dt, round(0.6 / dt), stepper)
        whole = dx.momentum(scene.model, motion.q[-1], motion.v[-1])[3:]
        found[name] = f"{float(jnp.linalg.norm(whole - jnp.array([2.0, 0, 0]))):.1e}"
    rows, m = peer(HIT, 300, {6: 2.0})
    masses = m.body_mass[1:]
    whole = masses[0] * rows[-1, 14:17] + masses[1] * rows[-1, 20:23]
    found["MuJoCo"] = found["MuJoCo, tuned"] = f"{np.linalg.norm(whole - [2.0, 0, 0]):.1e}"
    return "linear momentum lost when a ball hits a box, of 2 N s", found


def penetration() -> list[Row]:
    """How deep a ball that falls from 0.2 m goes in, and how deep it lies [m]."""
    rows = []
    scene = dx.load_scene(BALL.format(dt=0.001, integrator="Euler", z=0.3, solref=""))
    stiff = 'solref="0.004 1" solimp="0.99 0.99 0.001"'
    for dt in (0.001, 0.002, 0.005, 0.01):
        motion = run(scene, jnp.zeros(1), jnp.zeros(1), dt, round(1 / dt))
        lowest = float(jnp.min(motion.q)) + 0.2
        found = {"steps": f"{max(-lowest, 0.0):.1e}"}
        for name, solref in (("MuJoCo", ""), ("MuJoCo, tuned", stiff)):
            path, _ = peer(BALL.format(dt=dt, integrator="Euler", z=0.3, solref=solref), round(1 / dt))
            found[name] = f"{max(-(path[:, 0].min() + 0.2), 0.0):.1e}"
        rows.append((f"deepest penetration of a ball that falls 0.2 m, dt {1000 * dt:g} ms [m]", found))
    motion = run(scene, jnp.zeros(1), jnp.zeros(1), 5e-4, 2000, Compliant())
    rows[0][1]["compliant"] = f"{-(float(jnp.min(motion.q)) + 0.2):.1e}"
    return rows


def table() -> str:
    columns = ("steps", "compliant", "events", "MuJoCo", "MuJoCo, tuned")
    rows = [["", *columns], ["---"] * (len(columns) + 1)]
    for label, found in (slope(), elastic(), momentum(), *penetration()):
        rows.append([label, *(found.get(column, "") for column in columns)])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + f"\n\nMuJoCo {mujoco.__version__}.\n"


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    text = PAGE.read_text(encoding="utf-8")
    own = re.escape(BEGIN) + ".*?" + re.escape(END)
    if not re.search(own, text, re.DOTALL):
        raise SystemExit(f"{PAGE.name} has no place for the table")
    PAGE.write_text(re.sub(own, lambda _: BEGIN + table() + END, text, flags=re.DOTALL), encoding="utf-8")

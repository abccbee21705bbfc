"""What `dynax bench` measures: the same states through dynax and through its peers, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dynax.algorithms.crba import mass_matrix
from dynax.derivatives.forward_dynamics import forward_dynamics_derivatives
from dynax.errors import ModelError
from dynax.io._mjcf_compile import import_mujoco
from dynax.io.convert_mujoco import MujocoConverter
from dynax.io.convert_pinocchio import PinocchioConverter
from dynax.io.write_mjcf import write_mjcf
from dynax.io.write_urdf import write_urdf
from dynax.model import Model
from dynax.model.configuration import random_configuration
from dynax.routes.forward_dynamics import forward_dynamics
from dynax.routes.inverse_dynamics import inverse_dynamics

WHAT: dict[str, Callable[..., Any]] = {
    "inverse dynamics": inverse_dynamics,
    "forward dynamics": forward_dynamics,
    "mass matrix": lambda model, q, v, x: mass_matrix(model, q),
    "derivatives of forward dynamics": lambda model, q, v, x: forward_dynamics_derivatives(model, q, v, x).q,
}
FEW = 16
"""States that peers go through, one after another."""
Call = Callable[[], Any]


@dataclass
class Row:
    what: str
    engine: str
    seconds: float
    """For each state, the median."""
    ratio: float
    """Of the time of dynax for one state, or for a batch."""
    compile_seconds: float | None = None
    difference: float | None = None
    """From dynax, as a part of the largest number of the answer."""


def measure(
    model: Model, batch: int, seconds: float, progress: Callable[[str], None]
) -> tuple[list[Row], dict[str, str]]:
    """The rows of the table, and why a peer is not among them.

    Friction, springs and armature are taken out, which engines do not all count alike; dynax takes as long with them.
    """
    zero = {leaf: jnp.zeros(model.nv) for leaf in ("damping", "friction_loss", "stiffness", "armature")}
    model = model.replace(**zero)
    keys = jax.random.split(jax.random.key(0), batch)
    states = jax.vmap(lambda k: random_configuration(model, k))(keys), *jax.random.normal(keys[0], (2, batch, model.nv))
    few = [np.asarray(x[:FEW]) for x in states]
    peers, absent = _peers(model, few)
    rows = []
    for what, function in WHAT.items():
        progress(f"{what}: compiling")
        one, alone = _compiled(function, model, [x[0] for x in states])
        many, together = _compiled(jax.vmap(function, in_axes=(None, 0, 0, 0)), model, states)
        answers = np.asarray(many())[: len(few[0])]
        if what == "mass matrix":  # in whatever order a peer has its freedoms: what it does to the velocity
            answers = np.einsum("kij,kj->ki", answers, few[1])
        calls: dict[str, tuple[Call, int]] = {"dynax": (one, 1), f"dynax, {batch} at once": (many, batch)}
        found = {}
        for engine, peer in peers.items():
            if what in peer:
                call, answer = peer[what]
                calls[engine] = call, len(few[0])
                if answer is not None:
                    found[engine] = answer()
        progress(f"{what}: measuring")
        times = _in_turns(calls, seconds)
        for engine, taken in times.items():
            difference = None
            if engine in found:
                difference = float(np.max(np.abs(found[engine] - answers)) / max(np.max(np.abs(answers)), 1e-30))
            compiling = {"dynax": alone, f"dynax, {batch} at once": together}.get(engine)
            rows.append(Row(what, engine, taken, taken / times["dynax"], compiling, difference))
    return rows, absent


def _compiled(function: Any, model: Model, states: Any) -> tuple[Call, float]:
    program = jax.jit(lambda *states: function(model, *states))  # numbers of the robot go in as constants
    start = time.perf_counter()
    jax.block_until_ready(program(*states))
    return lambda: jax.block_until_ready(program(*states)), time.perf_counter() - start


def _in_turns(calls: dict[str, tuple[Call, int]], seconds: float) -> dict[str, float]:
    """Median seconds for each state: blocks of some milliseconds, all engines in turn."""
    counts = {}
    for engine, (call, _) in calls.items():
        call()
        start = time.perf_counter()
        call()
        counts[engine] = max(1, round(0.005 / max(time.perf_counter() - start, 1e-7)))
    samples: dict[str, list[float]] = {engine: [] for engine in calls}
    end = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end or len(samples["dynax"]) < 5:
        for engine, (call, size) in calls.items():
            start = time.perf_counter()
            for _ in range(counts[engine]):
                call()
            samples[engine].append((time.perf_counter() - start) / counts[engine] / size)
    return {engine: median(taken) for engine, taken in samples.items()}


Peer = dict[str, tuple[Call, Callable[[], np.ndarray] | None]]
"""What to time, a pass through a few states, and what it answers there in our order."""


def _peers(model: Model, few: list[np.ndarray]) -> tuple[dict[str, Peer], dict[str, str]]:
    peers: dict[str, Peer] = {}
    absent: dict[str, str] = {}
    for name, make in (("pinocchio", _pinocchio), ("mujoco", _mujoco)):
        try:
            peers[name] = make(model, few)
        except ModuleNotFoundError:
            absent[name] = "is not installed"
        except (ModelError, ValueError) as error:
            absent[name] = str(error)
    return peers, absent


def _pinocchio(model: Model, few: list[np.ndarray]) -> Peer:
    pin: Any = import_module("pinocchio")  # whose names no type checker knows

    peer = pin.buildModelFromXML(write_urdf(model).text)
    peer.gravity.linear = np.asarray(model.gravity, float)
    convert, data = PinocchioConverter(model, peer), peer.createData()
    states = [
        tuple(map(np.asarray, (s.q, s.v, s.tau)))
        for s in (convert.to(*x[:2], tau=x[2]) for x in zip(*few, strict=True))
    ]

    def back(vectors: list[np.ndarray]) -> np.ndarray:
        return np.stack([np.asarray(convert.back(s[0], v).v) for s, v in zip(states, vectors, strict=True)])

    def mass(q: np.ndarray) -> np.ndarray:
        upper = np.triu(pin.crba(peer, data, q))
        return upper + np.triu(upper, 1).T

    return {
        "inverse dynamics": (
            lambda: [pin.rnea(peer, data, q, v, x) for q, v, x in states],
            lambda: back([pin.rnea(peer, data, q, v, x).copy() for q, v, x in states]),
        ),
        "forward dynamics": (
            lambda: [pin.aba(peer, data, q, v, x) for q, v, x in states],
            lambda: back([pin.aba(peer, data, q, v, x).copy() for q, v, x in states]),
        ),
        "mass matrix": (
            lambda: [pin.crba(peer, data, q) for q, _, _ in states],
            lambda: back([mass(q) @ v for q, v, _ in states]),
        ),
        "derivatives of forward dynamics": (
            lambda: [pin.computeABADerivatives(peer, data, q, v, x) for q, v, x in states],
            None,
        ),
    }


def _mujoco(model: Model, few: list[np.ndarray]) -> Peer:
    mujoco = import_mujoco()
    peer = mujoco.MjModel.from_xml_string(write_mjcf(model).text)
    peer.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONSTRAINT)
    convert, data = MujocoConverter(model, peer), mujoco.MjData(peer)
    given = [(convert.to(q, v, a=x), convert.to(q, v, tau=x)) for q, v, x in zip(*few, strict=True)]
    states = [tuple(map(np.asarray, (one.q, one.v, one.a, other.tau))) for one, other in given]
    full = np.zeros((peer.nv, peer.nv))

    def inverse(state: tuple) -> np.ndarray:
        data.qpos, data.qvel, data.qacc = state[:3]
        mujoco.mj_inverse(peer, data)
        return data.qfrc_inverse

    def forward(state: tuple) -> np.ndarray:
        data.qpos, data.qvel, data.qfrc_applied = state[0], state[1], state[3]
        mujoco.mj_forward(peer, data)
        return data.qacc

    def mass(state: tuple) -> np.ndarray:
        data.qpos = state[0]
        for stage in (mujoco.mj_kinematics, mujoco.mj_comPos, mujoco.mj_crb):
            stage(peer, data)
        try:
            mujoco.mj_fullM(peer, data, full)
        except TypeError:  # before MuJoCo 4
            mujoco.mj_fullM(peer, full, data.qM)
        return full

    def all_of(function: Callable[[tuple], Any]) -> Call:
        return lambda: [function(state) for state in states]

    def force(vectors: list[np.ndarray]) -> np.ndarray:
        found = [convert.back(s[0], s[1], qfrc=v).tau for s, v in zip(states, vectors, strict=True)]
        return np.stack([np.asarray(x) for x in found])

    def acceleration(vectors: list[np.ndarray]) -> np.ndarray:
        found = [convert.back(s[0], s[1], qacc=v).a for s, v in zip(states, vectors, strict=True)]
        return np.stack([np.asarray(x) for x in found])

    return {
        "inverse dynamics": (all_of(inverse), lambda: force([inverse(s).copy() for s in states])),
        "forward dynamics": (all_of(forward), lambda: acceleration([forward(s).copy() for s in states])),
        "mass matrix": (all_of(mass), lambda: force([mass(s) @ s[1] for s in states])),
    }

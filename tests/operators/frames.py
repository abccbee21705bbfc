"""Jacobians of frames and their rates from the textbook in dense matrices."""

from __future__ import annotations

import numpy as np
from dense import Dense, block, motion_transform, mul


def textbook(d: Dense, names: tuple[str, ...], kind: str) -> tuple[np.ndarray, np.ndarray]:
    """`J (b, 6 m, nv)` and `Jdot v (b, 6 m)` of frames whose six-vectors stand as `kind` says, at the states of `d`."""
    model = d.model
    jacobian = d.jacobians.reshape(d.batch, d.n, 6, d.nv)
    acceleration = d.acceleration(np.zeros((d.batch, d.nv)), gravity=False)
    found = []
    for name in names:
        body, pose = model.locate(name)
        if body < 0:
            found.append((np.zeros((d.batch, 6, d.nv)), np.zeros((d.batch, 6))))
            continue
        turn, shift = (np.eye(3), np.zeros(3)) if pose is None else map(np.asarray, (pose.rotation, pose.translation))
        x = motion_transform(turn, shift)
        rotation = d.rotation[:, body] @ turn
        position = d.position[:, body] + mul(d.rotation[:, body], shift)
        zero = np.zeros_like(rotation)
        extra = np.zeros((d.batch, 6))
        if kind != "body":
            x = block(rotation, zero, zero, rotation) @ x
        if kind == "world":
            x = motion_transform(np.broadcast_to(np.eye(3), rotation.shape), -position) @ x
        if kind == "world_aligned":
            velocity = mul(x, d.velocity[:, body])
            extra[:, 3:] = np.cross(velocity[:, :3], velocity[:, 3:])
        found.append((x @ jacobian[:, body], mul(x, acceleration[:, body]) + extra))
    return tuple(np.concatenate(parts, 1) for parts in zip(*found, strict=True))

"""`dynax info`."""

from __future__ import annotations

import argparse
from typing import Any

from dynax.cli.terminal import BOLD, GOOD, add_json, add_robot, paint, plain, print_json, table

HELP = "print the joints of a robot with their places in q and v and their limits, its bodies and its masses"


def arguments(command: argparse.ArgumentParser) -> None:
    add_robot(command)
    add_json(command)


def run(options: argparse.Namespace) -> int:
    import sys

    from dynax.io import load

    found = described(load(options.file, root=options.root))
    if options.json:
        print_json({"file": options.file, **found})
        return GOOD
    print(paint(plain(found["name"]), BOLD, sys.stdout))
    print(
        f"{len(found['bodies'])} bodies, nq {found['nq']}, nv {found['nv']}, {found['mass']:.5g} kg, "
        f"centre of mass {_vector(found['center_of_mass'])} m, gravity {_vector(found['gravity'])} m/s^2\n"
    )
    rows = [
        [
            joint["name"], joint["kind"], f"{joint['q'][0]}:{joint['q'][1]}", f"{joint['v'][0]}:{joint['v'][1]}",
            "; ".join(f"{low:.4g} .. {high:.4g}" for low, high in joint["position_limits"]) or "-",
            _vector(joint["effort_limits"]), _vector(joint["damping"]),
        ]
        for joint in found["joints"]
    ]  # fmt: skip
    print(table(rows, ["joint", "kind", "q", "v", "limits", "effort", "damping"]), end="\n\n")
    rows = [
        [body["name"], body["parent"], f"{body['mass']:.5g}", _vector(body["center_of_mass"])]
        for body in found["bodies"]
    ]
    print(table(rows, ["body", "parent", "mass [kg]", "centre of mass [m]"]))
    if found["frames"]:
        print(plain(f"\nframes: {', '.join(f'{name} on {body}' for name, body in found['frames'].items())}"))
    return GOOD


def described(model: Any) -> dict[str, Any]:
    """All that `--json` prints."""
    import numpy as np

    from dynax.algorithms.center_of_mass import center_of_mass
    from dynax.model.configuration import neutral

    tree = getattr(model, "tree", model)
    parents = [tree.body_names[k] if k >= 0 else "world" for k in tree.parents]
    moments, masses = np.asarray(tree.first_moment), np.asarray(tree.mass)
    centers = np.asarray(tree.com) + moments / np.where(masses > 0, masses, 1.0)[:, None]
    joints = []
    for k, name in enumerate(tree.joint_names):
        q, v = tree.q_slice(name), tree.v_slice(name)
        limits = np.asarray(tree.position_limits[q])
        joints.append(
            {
                "name": name,
                "kind": type(tree.joints[k]).__name__,
                "body": tree.body_names[k],
                "q": [q.start, q.stop],
                "v": [v.start, v.stop],
                "position_limits": limits[np.isfinite(limits).any(axis=1)],
                "velocity_limits": tree.velocity_limits[v],
                "effort_limits": tree.effort_limits[v],
                "damping": tree.damping[v],
            }
        )
    bodies = [
        {"name": name, "parent": parent, "mass": float(mass), "center_of_mass": center}
        for name, parent, mass, center in zip(tree.body_names, parents, masses, centers, strict=True)
    ]
    on = ["world" if k < 0 else tree.body_names[k] for k in tree.structure.frame_bodies]
    return {
        "name": model.name,
        "nq": model.nq,
        "nv": model.nv,
        "mass": float(masses.sum()),
        "center_of_mass": np.asarray(center_of_mass(model, neutral(model))),
        "gravity": tree.gravity,
        "joints": joints,
        "bodies": bodies,
        "frames": dict(zip(tree.frame_names, on, strict=True)),
        "loops": list(tree.loop_names),
        "gears": [list(gear) for gear in tree.couplings],
    }


def _vector(values: Any) -> str:
    return " ".join(f"{float(x):.4g}" for x in values) or "-"

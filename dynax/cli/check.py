"""`dynax check`."""

from __future__ import annotations

import argparse

from dynax.cli.terminal import FOUND, GOOD, YELLOW, add_json, add_robot, paint, plain, print_json

HELP = "print the tree of a robot, or the modes of a structure, and what is odd about the file"


def arguments(command: argparse.ArgumentParser) -> None:
    add_robot(command)
    command.add_argument("--strict", action="store_true", help="exit with 1 where anything is odd")
    add_json(command)
    command.epilog = "FILE may also be a .npz or a folder of Matrix Market files with a structure."


def run(options: argparse.Namespace) -> int:
    import sys

    import numpy as np

    from dynax.io import load
    from dynax.io.matrices import check_matrices, holds_matrices
    from dynax.model.flexible import FlexibleModel

    if holds_matrices(options.file):
        found = check_matrices(options.file)
        print_json({"file": options.file, "structure": str(found)}) if options.json else print(found)
        return GOOD
    model = load(options.file, root=options.root)
    tree = model.tree if isinstance(model, FlexibleModel) else model
    status = FOUND if options.strict and tree.report else GOOD
    if options.json:
        findings = [{"element": f.element, "message": f.message, "line": f.line} for f in tree.report]
        print_json({"file": options.file, "name": model.name, "nq": model.nq, "nv": model.nv, "findings": findings})
        return status
    print(plain(model))
    depth = int(tree.topology.depths.max(initial=0))
    limited = int(np.sum(np.isfinite(np.asarray(tree.position_limits)).any(axis=1)))
    print(f"depth {depth}, {len(tree.frame_names)} frames, {limited} limited coordinates")
    for follower, *sources in tree.couplings:
        print(f"gear: {follower!r} follows {', '.join(map(repr, sources))}" if sources else f"held: {follower!r}")
    for loop in tree.structure.loops:
        one, two = ("world" if k < 0 else tree.body_names[k] for k in (loop.predecessor, loop.successor))
        print(f"loop: {loop.name!r} holds {two!r} to {one!r}")
    print(paint("odd about the file:", YELLOW, sys.stdout) if tree.report else "nothing odd found")
    for finding in tree.report:
        print(plain(f"  {finding}"))
    return status

"""The command line: `dynax demo` and `dynax check`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="dynax", description="Differentiable multibody dynamics in JAX.")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser(
        "demo", help="check, roll out, optimise and identify a robot, and draw a page of figures"
    )
    demo.add_argument("file", nargs="?", help="a URDF or MJCF; default: the seven-joint arm that comes with dynax")
    _add_root(demo)
    demo.add_argument("--output", default="dynax_demo.png", help="where the figures go (default: %(default)s)")
    demo.add_argument("--quick", action="store_true", help="fewer steps, for a smoke test")
    check = commands.add_parser(
        "check", help="print the tree of a robot, or the modes of a structure, and what is odd about the file"
    )
    check.add_argument(
        "file", help="a URDF, MJCF or saved model; or a .npz or folder of Matrix Market files with a structure"
    )
    _add_root(check)
    options = parser.parse_args(arguments)
    return _demo(options) if options.command == "demo" else _check(options)


def _add_root(command: argparse.ArgumentParser) -> None:
    command.add_argument("--root", choices=("fixed", "free"), default="fixed", help="how a URDF's root link is held")


def _demo(options: argparse.Namespace) -> int:
    from dynax.errors import ModelError

    try:
        from dynax.demo import run

        return 0 if run(options.file, root=options.root, output=options.output, quick=options.quick) else 1
    except ModelError as error:
        print(f"error: {error}", file=sys.stderr)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("matplotlib", "tqdm", "mujoco"):
            raise
        print(f'error: the demo needs {error.name}: pip install "dynax[demo]"', file=sys.stderr)
    return 2


def _check(options: argparse.Namespace) -> int:
    import numpy as np

    from dynax.errors import ModelError
    from dynax.io import load
    from dynax.io.matrices import check_matrices, holds_matrices
    from dynax.model.flexible import FlexibleModel

    try:
        if holds_matrices(options.file):
            print(check_matrices(options.file))
            return 0
        model = load(options.file, root=options.root)
    except ModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(model)
    model = model.tree if isinstance(model, FlexibleModel) else model
    depth = int(model.topology.depths.max(initial=0))
    limited = int(np.sum(np.isfinite(np.asarray(model.position_limits)).any(axis=1)))
    print(f"depth {depth}, {len(model.frame_names)} frames, {limited} limited coordinates")
    for follower, *sources in model.couplings:
        print(f"gear: {follower!r} follows {', '.join(map(repr, sources))}" if sources else f"held: {follower!r}")
    for loop in model.structure.loops:
        one, two = ("world" if k < 0 else model.body_names[k] for k in (loop.predecessor, loop.successor))
        print(f"loop: {loop.name!r} holds {two!r} to {one!r}")
    print("nothing odd found" if not model.report else f"{len(model.report)} findings:")
    for finding in model.report:
        print(f"  {finding}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`dynax convert`."""

from __future__ import annotations

import argparse
from pathlib import Path

from dynax.cli.terminal import GOOD, add_json, add_robot, note, print_json

HELP = "write a robot as a URDF, an MJCF, an SDF or a saved model, and say what the format cannot"


def arguments(command: argparse.ArgumentParser) -> None:
    add_robot(command)
    command.add_argument("output", help="by its ending: .urdf, .xml or .mjcf, .sdf, .json for a saved model")
    command.add_argument("--force", action="store_true", help="replace a file that exists")
    add_json(command)


def run(options: argparse.Namespace) -> int:
    from dynax.errors import ModelError
    from dynax.io import load, save
    from dynax.io.write_mjcf import write_mjcf
    from dynax.io.write_sdf import write_sdf
    from dynax.io.write_urdf import write_urdf

    output = Path(options.output)
    writers = {".urdf": write_urdf, ".xml": write_mjcf, ".mjcf": write_mjcf, ".sdf": write_sdf, ".json": save}
    if output.suffix.lower() not in writers:
        raise ModelError(f"its ending is none of {', '.join(writers)}", file=options.output)
    if output.exists() and not options.force:
        raise ModelError("exists", file=options.output, hint="--force replaces it")
    written = writers[output.suffix.lower()](load(options.file, root=options.root), output)
    left_out = [] if written is None else list(written.left_out)
    if options.json:
        told = [{"element": f.element, "message": f.message} for f in left_out]
        print_json({"file": options.file, "output": options.output, "left_out": told})
        return GOOD
    for finding in left_out:
        note(finding)
    print(f"wrote {output}")
    return GOOD

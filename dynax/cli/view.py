"""`dynax view`."""

from __future__ import annotations

import argparse
import math

from dynax.cli.terminal import GOOD, add_robot, plain, robot_of

HELP = "show a robot in a browser, with sliders for its joints, or moving"


def arguments(command: argparse.ArgumentParser) -> None:
    add_robot(command, optional=True)
    command.add_argument("--move", choices=("swing", "fall"), help="through the joints' ranges, or by its own weight")
    command.add_argument("--seconds", type=_positive, default=6.0, help="of the motion (default: %(default)s)")
    command.add_argument("--html", metavar="FILE", help="write a page that opens by itself instead, and end")
    command.add_argument("--render", metavar="FILE", help="write a .png, .gif or .mp4 instead, and end")
    command.add_argument("--host", default="127.0.0.1", help="who may look (default: this computer alone)")
    command.add_argument("--port", type=int, default=8080, help="the first that is tried (default: %(default)s)")
    command.add_argument("--no-browser", action="store_true", help="print the address, and open nothing")


def run(options: argparse.Namespace) -> int:
    from dynax.io import load
    from dynax.viz import render, view
    from dynax.viz.actors import home
    from dynax.viz.motions import fall, swing

    robot = robot_of(options)
    model = load(robot, root=options.root)
    motion = None
    if options.move == "fall":
        motion = fall(model, options.seconds, home(model, robot))
    elif options.move == "swing" or options.file is None:
        motion = swing(model, options.seconds, home(model, robot))
    looks = {"root": options.root}
    if options.render:
        render(robot, motion, options.render, **looks)
        print(f"wrote {options.render}")
    if options.html:
        with view(robot, motion, port=0, **looks) as viewer:
            print(f"wrote {viewer.save_html(options.html)}")
    if options.html or options.render:
        return GOOD
    with view(robot, motion, host=options.host, port=options.port, **looks) as viewer:
        print(f"{plain(model.name)} at {viewer.url} (Ctrl-C ends)", flush=True)
        if not options.no_browser:
            import webbrowser

            webbrowser.open(viewer.url)
        viewer.wait()
    return GOOD


def _positive(text: str) -> float:
    value = float(text)
    if not 0.0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be more than 0, got {text}")
    return value

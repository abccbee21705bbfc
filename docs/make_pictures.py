"""Draw the README's picture of a motion: `python docs/make_pictures.py [FOLDER]`, default `docs`. CI draws it again."""

from __future__ import annotations

import sys
from pathlib import Path

import dynax as dx
from dynax.demo.main import load_arm
from dynax.viz.motions import swing

FOLDER = Path(__file__).resolve().parent


def arm(file: Path) -> None:
    """The arm that comes with dynax, as `dynax view` moves it."""
    text = Path(dx.__file__).parent / "models" / "arm7.urdf"
    dx.render(text, swing(load_arm(), 3.0), file, size=(400, 300), fps=15)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(exist_ok=True)
    arm(folder / "arm.gif")
    print(f"{folder / 'arm.gif'}: {(folder / 'arm.gif').stat().st_size / 1024:.0f} kB")


if __name__ == "__main__":
    main()

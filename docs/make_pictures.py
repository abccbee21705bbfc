"""Draw the README's pictures, or hold what is drawn today against them.

python docs/make_pictures.py [arm.gif] [demo.png]      draws them into docs
python docs/make_pictures.py --check arm.gif           draws it elsewhere and fails if it looks otherwise
python docs/make_pictures.py --check demo.png --drawn dynax_demo.png     the same of what `dynax demo` drew
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import dynax as dx
from dynax.demo.main import load_arm, run
from dynax.viz.actors import home
from dynax.viz.motions import swing

FOLDER = Path(__file__).resolve().parent
CLOSE = 0.05
"""Of black to white, the mean over small squares: another speed in a title makes 0.002, other curves 0.07, another
layout 0.13."""


def arm(file: Path) -> None:
    """The arm that comes with dynax, as `dynax view` moves it."""
    text = Path(dx.__file__).parent / "models" / "arm7.urdf"
    model = load_arm()
    dx.render(text, swing(model, 3.0, home(model)), file, size=(400, 300), fps=15)


PICTURES = {"arm.gif": arm, "demo.png": lambda file: run(output=str(file))}


def unlike(one: Path, other: Path) -> float:
    """How far two pictures are apart in grey, squares of eight pixels against each other; of films a middle frame."""
    squares = []
    for file in (one, other):
        with Image.open(file) as picture:
            picture.seek(getattr(picture, "n_frames", 1) // 2)
            small = picture.convert("L").reduce(8)
            squares.append(np.asarray(small, float) / 255.0)
    if squares[0].shape != squares[1].shape:
        return float("inf")
    shown = (squares[0] < 0.98) | (squares[1] < 0.98)  # white paper is no likeness
    return float(np.mean(np.abs(squares[0] - squares[1])[shown]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *PICTURES])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--drawn", type=Path)
    options = parser.parse_args()
    failed = False
    for name in options.names or PICTURES:
        with tempfile.TemporaryDirectory() as folder:
            file = options.drawn or (Path(folder) if options.check else FOLDER) / name
            if not options.drawn:
                PICTURES[name](file)
            apart = unlike(file, FOLDER / name)
            print(f"{name}: {file.stat().st_size / 1024:.0f} kB, {apart:.4f} from docs/{name}")
            failed |= options.check and not apart < CLOSE
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

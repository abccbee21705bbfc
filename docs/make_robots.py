"""Write `docs/robots.md`: what comes of every URDF of the `example-robot-data` wheel.

python docs/make_robots.py            writes the page
python docs/make_robots.py --check    fails if the page is stale
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections import Counter
from pathlib import Path

import dynax as dx

PAGE = Path(__file__).resolve().parent / "robots.md"
WHEEL = "example-robot-data"

HEADER = """\
# Robots

Every URDF of the wheel `example-robot-data` {version}, as `dx.load(path)` reads it, its root fixed: written by
`make_robots.py`. Bodies are those that move; the mass is theirs, without what is fixed to the ground. `root="free"`
adds one body with 7 coordinates and 6 velocities. Findings are the entries of `model.report`: things that
are odd about a file and were loaded as they are; that their shapes are not used is left out here.

{count} files, {loaded} load, {refused} are refused, and each refusal is right about its file.
"""

# What the entries of a report say, and how the page says it.
KINDS = {
    "mimics joint": "mimic joints, gears that rollouts keep",
    "<mimic> has no meaning": "mimic elements of fixed joints",
    "the velocity limit is zero": "velocity limits of zero",
    "the effort limit is zero": "effort limits of zero",
    "the range is the single point": "ranges of a single point",
    "has mass but no rotational inertia": "links with mass but no rotational inertia",
    "has rotational inertia but no mass": "links with rotational inertia but no mass",
    "are not all positive": "inertias with a negative principal moment",
    "violate the triangle inequality": "inertias against the triangle inequality",
    "element <": "kinds of unknown elements",
    "attribute '": "kinds of unknown attributes",
    "forward dynamics is singular": "joints nothing resists: forward dynamics is singular",
}


def robots() -> dict[str, Path]:
    """The URDFs of the wheel by their path under `robots/`."""
    files = importlib.metadata.files(WHEEL) or []
    found = {str(file).split("robots/", 1)[1]: Path(str(file.locate())) for file in files if file.suffix == ".urdf"}
    return dict(sorted(found.items()))


def findings(model: dx.Model) -> str:
    """How many of each kind."""
    counts: Counter[str] = Counter()
    for finding in model.report:
        if finding.element == "geometry":  # nearly every file has some
            continue
        counts[next((kind for kind in KINDS if kind in str(finding)), "others")] += 1
    return "; ".join(f"{KINDS.get(kind, kind)}: {count}" for kind, count in counts.items())


def row(name: str, path: Path) -> tuple[str, bool]:
    """The line of one file, and whether it loads."""
    try:
        model = dx.load(path)
    except dx.ModelError as error:
        reason = str(error).replace(f"{path}:", "line ").replace("|", "\\|")
        return f"| `{name}` | | | | | refused: {reason} |", False
    sizes = f"{model.num_bodies} | {model.nq} | {model.nv} | {float(model.mass.sum()):.4g}"
    return f"| `{name}` | {sizes} | {findings(model)} |", True


def page() -> str:
    rows = [row(name, path) for name, path in robots().items()]
    loaded = sum(loads for _, loads in rows)
    version = importlib.metadata.version(WHEEL)
    header = HEADER.format(version=version, count=len(rows), loaded=loaded, refused=len(rows) - loaded)
    table = ["| file | bodies | nq | nv | mass [kg] | findings |", "|---|---|---|---|---|---|"]
    return "\n".join([header, *table, *(line for line, _ in rows)]) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write docs/robots.md from the example robots.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is stale")
    text = page()
    if not parser.parse_args(arguments).check:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != text:
        print("docs/robots.md is stale: run `python docs/make_robots.py` and commit it", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The links and joints of a URDF as one tree, or an error that says where it is none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dynax.io._xml import Element
from dynax.model.builder import WORLD
from dynax.model.structure import nearest_names

_TYPES = ("revolute", "continuous", "prismatic", "fixed", "floating", "planar")


@dataclass(frozen=True)
class Joint:
    """A joint of the tree; the one that `root` asks for has no name when it is a weld."""

    element: Element
    name: str | None
    type: str
    parent: str
    child: str


@dataclass(frozen=True)
class Tree:
    """Links and joints by name, the joints that leave each link in file order, and the one link without a parent."""

    links: dict[str, Element]
    joints: dict[str, Joint]
    leaving: dict[str, list[Joint]]
    root: str


def read_tree(robot: Element) -> Tree:
    """Links and joints of a `<robot>`, once it is certain that each joint joins two links and all form one tree."""
    links = _by_name(robot.all("link"))
    if not links:
        raise robot.error("there is no <link>", hint="a model needs at least one link")
    joints = {name: _read_joint(element, name, links) for name, element in _by_name(robot.all("joint")).items()}
    holder: dict[str, Joint] = {}
    leaving: dict[str, list[Joint]] = defaultdict(list)
    for joint in joints.values():
        if joint.child in holder:
            other = holder[joint.child]
            raise joint.element.error(
                f"link '{joint.child}' already hangs on {other.element.label} (line {other.element.line})",
                hint="each link is the child of at most one joint: URDF holds trees, no loops",
            )
        holder[joint.child] = joint
        leaving[joint.parent].append(joint)
    _refuse_cycles(links, holder)
    return Tree(links, joints, leaving, _only_root(robot, links, holder))


def _by_name(elements: list[Element]) -> dict[str, Element]:
    found: dict[str, Element] = {}
    for element in elements:
        first = found.setdefault(element.attribute("name"), element)
        if first is not element:
            raise element.error(
                f"the name is taken, in line {first.line}", hint=f"give each {element.tag} its own name"
            )
    return found


def _read_joint(element: Element, name: str, links: dict[str, Element]) -> Joint:
    kind = element.attribute("type")
    if kind not in _TYPES:
        raise element.error(f"unknown joint type '{kind}'", hint=f"use one of {', '.join(_TYPES)}")
    ends = []
    for end in (element.required_child("parent"), element.required_child("child")):
        link = end.attribute("link")
        if link not in links:
            raise end.error(f"there is no link '{link}'", hint=closest(link, links, "link"))
        ends.append(link)
    if ends[0] == ends[1]:
        raise element.error(f"joins link '{ends[0]}' to itself", hint="name two different links as parent and child")
    return Joint(element, name, kind, *ends)


def _refuse_cycles(links: dict[str, Element], holder: dict[str, Joint]) -> None:
    """Walk up from every link; a walk that meets itself is a cycle. Settled links end a walk, so this is linear."""
    settled: set[str] = set()
    for link in links:
        path: dict[str, None] = {}
        while link in holder and link not in settled:
            if link in path:
                cycle = list(path)[list(path).index(link) :]
                raise holder[link].element.error(
                    f"links form a cycle: {listed(reversed(cycle))}", hint="remove one joint of the cycle"
                )
            path[link] = None
            link = holder[link].parent
        settled.update(path)


def _only_root(robot: Element, links: dict[str, Element], holder: dict[str, Joint]) -> str:
    roots = [link for link in links if link not in holder]
    if len(roots) > 1:
        raise robot.error(
            f"{len(roots)} links hang on no joint: {listed(f'{link!r} (line {links[link].line})' for link in roots)}",
            hint="join them by joints, type fixed if need be, or load each tree from its own file",
        )
    if WORLD in links and roots[0] != WORLD:
        raise links[WORLD].error("'world' names the ground, so it can only be the root", hint="rename the link")
    return roots[0]


def depth_first(tree: Tree, joints: list[Joint]) -> Iterator[Joint]:
    stack = joints[::-1]
    while stack:
        joint = stack.pop()
        yield joint
        stack.extend(reversed(tree.leaving.get(joint.child, [])))


def closest(name: str, known: Iterable[str], kind: str) -> str:
    near = nearest_names(name, known, 1)
    return f"did you mean '{near[0]}'?" if near else f"define the {kind}, or mend the name"


def listed(words: Iterable[str], limit: int = 8) -> str:
    words = list(words)
    return ", ".join(words[:limit]) + (f" and {len(words) - limit} more" if len(words) > limit else "")

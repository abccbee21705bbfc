"""A program of scalars: what one thread computes.

Numbers are known by an index. What is asked for twice is one number, what is known when the program is made is a
constant, and what nothing comes of is never written. A number belongs to the innermost loop that it depends on, so
what does not change in a loop is computed before it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

LARGEST = 400_000
"""Numbers in a program, those of them that nothing comes of included."""


class TooLargeError(Exception):
    """A program is too long for a kernel."""


class Number(NamedTuple):
    """`operation(*operands)` of a type; `detail` is what else it depends on."""

    operation: str
    dtype: np.dtype
    operands: tuple[int, ...] = ()
    detail: Any = None


class Loop:
    """`while`: what it carries, whether it goes on, and what it carries next."""

    def __init__(self, parent: int) -> None:
        self.parent = parent
        """The index of the loop around it, zero for none."""
        self.starts: list[int] = []
        self.variables: list[int] = []
        self.goes_on = -1
        self.nexts: list[int] = []

    @property
    def ends(self) -> list[int]:
        return [self.goes_on, *self.nexts]


class Scalars:
    """The numbers of one program."""

    def __init__(self) -> None:
        self.numbers: list[Number] = []
        self.loops: list[Loop | None] = [None]
        """The first is no loop: what is computed once."""
        self.within: list[int] = []
        """The loop that each number belongs to."""
        self._found: dict[Any, int] = {}
        self._depths = [0]
        self._open = 0
        self._from_outside: dict[int, tuple[int, ...]] = {}

    def constant(self, value: Any, dtype: Any) -> int:
        dtype = np.dtype(dtype)
        value = dtype.type(value)
        return self._number(Number("constant", dtype, (), value), (dtype.char, value.tobytes()))

    def load(self, dtype: Any, array: int, entry: int) -> int:
        return self._number(Number("load", np.dtype(dtype), (), (array, entry)))

    def of(self, operation: str, dtype: Any, *operands: int, detail: Any = None) -> int:
        """The number itself, or a simpler one that is equal."""
        simpler = self._simpler(operation, np.dtype(dtype), operands, detail)
        if simpler is not None:
            return simpler
        return self._number(Number(operation, np.dtype(dtype), operands, detail))

    def value(self, number: int) -> Any:
        """Of a constant; `None` of what is known only when the program runs."""
        own = self.numbers[number]
        return own.detail if own.operation == "constant" else None

    def loop(self, dtypes: Sequence[Any], starts: Sequence[int]) -> tuple[int, Loop]:
        """A loop to be filled, in the one that is being filled."""
        index = len(self.loops)
        own = Loop(0)
        self.loops.append(own)
        self._open += 1
        self._depths.append(self._open)
        own.starts = list(starts)
        own.variables = [
            self._number(Number("variable", np.dtype(t), (), (index, k)), within=index) for k, t in enumerate(dtypes)
        ]
        return index, own

    def close(self, index: int, goes_on: int, nexts: Sequence[int]) -> list[int]:
        """The results of a loop that has been filled."""
        own = self.loops[index]
        assert own is not None
        own.goes_on, own.nexts = goes_on, list(nexts)
        own.parent = self._innermost((*own.starts, *self.outside(index)))
        self._open -= 1
        whole = self._number(Number("loop", np.dtype(bool), (), index), within=own.parent)
        return [
            self._number(Number("result", self.numbers[x].dtype, (whole,), (index, k)))
            for k, x in enumerate(own.variables)
        ]

    def outside(self, index: int) -> tuple[int, ...]:
        """What is used in a loop and computed outside of it."""
        if index not in self._from_outside:
            own = self.loops[index]
            assert own is not None
            found: dict[int, None] = {}
            seen: set[int] = set()
            waiting = list(own.ends)
            while waiting:
                x = waiting.pop()
                if x in seen:
                    continue
                seen.add(x)
                if not self._inside(self.within[x], index):
                    found[x] = None
                    continue
                waiting.extend(self.needed(x))
            self._from_outside[index] = tuple(sorted(found))
        return self._from_outside[index]

    def needed(self, number: int) -> Sequence[int]:
        """What must be computed before it."""
        own = self.numbers[number]
        if own.operation != "loop":
            return own.operands
        inner = self.loops[own.detail]
        assert inner is not None
        return (*inner.starts, *self.outside(own.detail))

    def in_order(self, wanted: Iterable[int], within: int, given: Container[int] = ()) -> list[int]:
        """The numbers of one loop that are wanted and those they need, each as late as possible: what is in work at
        the same time should be little. Those `given` need nothing."""
        order: list[int] = []
        done: set[int] = set()
        for root in wanted:
            waiting = [(root, False)]
            while waiting:
                x, ready = waiting.pop()
                if x in done or self.within[x] != within:
                    continue
                if ready:
                    done.add(x)
                    order.append(x)
                    continue
                waiting.append((x, True))
                if x in given:
                    continue
                waiting.extend((y, False) for y in reversed(self.needed(x)))
        return order

    def same_for_all(self, wanted: Sequence[int], loads: Container[int]) -> list[int]:
        """What comes of arrays `loads` alone and something else needs, in order."""
        same: set[int] = set()
        order = self.in_order(wanted, 0)
        for x in order:
            own = self.numbers[x]
            if own.operation == "load":
                known = own.detail[0] in loads
            else:
                known = own.operation not in ("loop", "result") and all(y in same for y in own.operands)
            if known:
                same.add(x)
        needed = {y for x in order if x not in same for y in self.needed(x)}
        needed.update(wanted)
        return [x for x in order if x in same and x in needed and self.numbers[x].operands]

    def _number(self, number: Number, key: Any = None, within: int | None = None) -> int:
        key = number._replace(detail=None if key else number.detail), key
        found = self._found.get(key)
        if found is None:
            if len(self.numbers) >= LARGEST:
                raise TooLargeError(f"it has more than {LARGEST} numbers")
            found = self._found[key] = len(self.numbers)
            self.numbers.append(number)
            self.within.append(self._innermost(number.operands) if within is None else within)
        return found

    def _innermost(self, numbers: Iterable[int]) -> int:
        return max((self.within[x] for x in numbers), key=self._depths.__getitem__, default=0)

    def _inside(self, within: int, index: int) -> bool:
        while within and within != index:
            own = self.loops[within]
            assert own is not None
            within = own.parent
        return within == index

    def _simpler(self, operation: str, dtype: np.dtype, operands: tuple[int, ...], detail: Any) -> int | None:
        known = [self.value(x) for x in operands]
        if operation == "select":
            if known[0] is not None:
                return operands[1] if known[0] else operands[2]
            return operands[1] if operands[1] == operands[2] else None
        if all(x is not None for x in known):
            return self._folded(operation, dtype, known)
        a, b = (*known, None, None)[:2]
        if operation in ("+", "|") and len(known) == 2:
            return operands[1] if _is(a, 0) else operands[0] if _is(b, 0) else None
        if operation == "-" and len(known) == 2:
            return operands[0] if _is(b, 0) else self.of("negative", dtype, operands[1]) if _is(a, 0) else None
        if operation in ("*", "&"):
            if _is(a, 0) or _is(b, 0):  # of structure: what it would make of an infinity nothing asks for
                return self.constant(0, dtype)
            if operation == "*" or dtype.kind == "b":
                return operands[1] if _is(a, 1) else operands[0] if _is(b, 1) else None
        if operation == "/" and _is(b, 1):
            return operands[0]
        if operation == "negative" and self.numbers[operands[0]].operation == "negative":
            return self.numbers[operands[0]].operands[0]
        return None

    def _folded(self, operation: str, dtype: np.dtype, known: list) -> int | None:
        rule = FOLDED.get(operation)
        if rule is None:
            return None
        with np.errstate(all="ignore"):
            value = rule(*known)
        return self.constant(value, dtype)


def _is(value: Any, number: int) -> bool:
    return value is not None and value == number


FOLDED = {
    "+": lambda a, b: a | b if a.dtype == bool else a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "&": lambda a, b: a & b, "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b, "negative": lambda a: -a, "not": lambda a: ~a, "cast": lambda a: a,
    "maximum": np.maximum, "minimum": np.minimum, "abs": np.abs, "sign": np.sign,
}  # fmt: skip
"""Operations whose result is found when the program is made; division and functions are left to the device."""

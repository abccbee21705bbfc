"""A program of scalars as the text of a kernel in CUDA C: one thread, one sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dynax.compile.gpu.scalars import Number, Scalars

TYPES = {
    "bool": "bool", "int8": "signed char", "uint8": "unsigned char", "int32": "int", "uint32": "unsigned int",
    "int64": "long long", "uint64": "unsigned long long", "float32": "float", "float64": "double",
}  # fmt: skip
PRELUDE = """
template <class T> __device__ __forceinline__ T larger(T a, T b) { return a > b || a != a ? a : b; }
template <class T> __device__ __forceinline__ T smaller(T a, T b) { return a < b || a != a ? a : b; }
template <class T> __device__ __forceinline__ T sign_of(T a) { return a > 0 ? T(1) : a < 0 ? T(-1) : a; }
"""


class Entry(NamedTuple):
    """Where an array's numbers lie: `strides` of its entries, and of the axes of the batch, zero where it has one for
    all."""

    dtype: np.dtype
    strides: int
    along: tuple[int, ...]


Output = tuple[Entry, Sequence[int]]
"""Where an array's numbers are written, and which they are."""
Given = Mapping[int, tuple[int, int]]
"""Numbers that were computed before: in which array, and where in it."""
BLOCKS = 64
"""Of one thread each, which share what is the same for all samples: alone, one thread would take as long as a step."""


def kernel(
    scalars: Scalars, inputs: Sequence[Entry], outputs: Sequence[Output], batch: tuple, bounds: str, given: Given
) -> str:
    """The text of the kernel `walk`, a thread for each sample of the batch. Numbers `given` are in the last inputs."""
    wanted = [number for _, numbers in outputs for number in numbers]
    writing = _Writing(scalars, inputs, given)
    lines = writing.block(scalars.in_order(wanted, 0, given))
    samples = math.prod(batch)
    place = ["const int sample = blockIdx.x * blockDim.x + threadIdx.x;", f"if (sample >= {samples}) return;"]
    rest = "sample"
    for axis in reversed(range(len(batch))):
        place.append(f"const int b{axis} = {rest} % {batch[axis]};" if axis else f"const int b0 = {rest};")
        rest = f"({rest} / {batch[axis]})"
    return _kernel(inputs, outputs, [*place, *lines, *_written(writing, outputs)], bounds)


def ahead(scalars: Scalars, inputs: Sequence[Entry], numbers: Sequence[int]) -> tuple[str, Sequence[Output], Given]:
    """The text of a kernel `walk` of `BLOCKS` threads for numbers that are the same for all samples, where they are
    written, and the place of each."""
    kinds = sorted({scalars.numbers[x].dtype for x in numbers}, key=lambda dtype: dtype.name)
    own = {dtype: [x for x in numbers if scalars.numbers[x].dtype == dtype] for dtype in kinds}
    outputs = [(Entry(dtype, 1, ()), own[dtype]) for dtype in kinds]
    given = {x: (k, row) for k, dtype in enumerate(kinds) for row, x in enumerate(own[dtype])}
    share = -(-len(numbers) // BLOCKS)
    cases = []
    for k in range(0, len(numbers), share):
        part = numbers[k : k + share]
        writing = _Writing(scalars, inputs, {})
        lines = writing.block(scalars.in_order(part, 0))
        lines += [f"o{given[x][0]}[{given[x][1]}] = {writing.name(x)};" for x in part]
        cases += [f"case {k // share}: {{", *lines, "break; }"]
    return _kernel(inputs, outputs, ["switch (blockIdx.x) {", *cases, "}"], ""), outputs, given


def _written(writing: _Writing, outputs: Sequence[Output]) -> list[str]:
    return [
        f"o{k}[{row * entry.strides} + {_offset(entry)}] = {writing.name(number)};"
        for k, (entry, numbers) in enumerate(outputs)
        for row, number in enumerate(numbers)
    ]


def _kernel(inputs: Sequence[Entry], outputs: Sequence[Output], lines: Sequence[str], bounds: str) -> str:
    names = [f"const {TYPES[x.dtype.name]}* __restrict__ i{k}" for k, x in enumerate(inputs)]
    names += [f"{TYPES[x.dtype.name]}* __restrict__ o{k}" for k, (x, _) in enumerate(outputs)]
    body = "\n".join(lines)
    return f'{PRELUDE}extern "C" __global__ void {bounds} walk({", ".join(names)}) {{\n{body}\n}}\n'


def _offset(entry: Entry) -> str:
    return " + ".join(f"b{k} * {s}" for k, s in enumerate(entry.along) if s) or "0"


class _Writing:
    def __init__(self, scalars: Scalars, inputs: Sequence[Entry], given: Given) -> None:
        self.scalars, self.inputs, self.given = scalars, inputs, given

    def name(self, x: int) -> str:
        own = self.scalars.numbers[x]
        if own.operation == "constant":
            return _literal(own.detail)
        if own.operation in ("variable", "result"):
            return f"c{own.detail[0]}_{own.detail[1]}"
        return f"v{x}"

    def block(self, numbers: Sequence[int]) -> list[str]:
        """The lines that compute numbers, given in order."""
        lines = []
        for x in numbers:
            own = self.scalars.numbers[x]
            if x in self.given:
                array, row = self.given[x]
                lines.append(f"const {TYPES[own.dtype.name]} v{x} = i{array}[{row}];")
            elif own.operation == "loop":
                lines += self._loop(own.detail)
            elif own.operation not in ("constant", "variable", "result"):
                lines.append(f"const {TYPES[own.dtype.name]} v{x} = {self._expression(own)};")
        return lines

    def _loop(self, index: int) -> list[str]:
        loop = self.scalars.loops[index]
        assert loop is not None
        names = [f"c{index}_{k}" for k in range(len(loop.variables))]
        types = [TYPES[self.scalars.numbers[x].dtype.name] for x in loop.variables]
        lines = [f"{t} {n} = {self.name(s)};" for t, n, s in zip(types, names, loop.starts, strict=True)]
        first = self.scalars.in_order([loop.goes_on], index, self.given)
        known = set(first)
        rest = [x for x in self.scalars.in_order(loop.nexts, index, self.given) if x not in known]
        lines += ["while (true) {", *self.block(first), f"if (!{self.name(loop.goes_on)}) break;", *self.block(rest)]
        moved = [
            (n, t, self.name(x)) for n, t, x, v in zip(names, types, loop.nexts, loop.variables, strict=True) if x != v
        ]
        lines += [f"const {t} n{n} = {x};" for n, t, x in moved]
        return [*lines, *(f"{n} = n{n};" for n, _, _ in moved), "}"]

    def _expression(self, own: Number) -> str:
        a = [self.name(x) for x in own.operands]
        operation, t = own.operation, TYPES[own.dtype.name]
        single = own.dtype == np.float32
        if operation == "load":
            array, entry = own.detail
            return f"i{array}[{entry * self.inputs[array].strides} + {_offset(self.inputs[array])}]"
        if operation in ("+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!=", "&", "|", "^"):
            if own.dtype == bool and operation in ("+", "*"):
                operation = "|" if operation == "+" else "&"
            return f"{a[0]} {operation} {a[1]}"
        if operation == "negative":
            return f"-{a[0]}"
        if operation == "not":
            return f"!{a[0]}" if own.dtype == bool else f"~{a[0]}"
        if operation == "cast":
            return f"{a[0]} != 0" if own.dtype == bool else f"({t}){a[0]}"
        if operation == "select":
            return f"{a[0]} ? {a[1]} : {a[2]}"
        if operation in ("maximum", "minimum"):
            return f"{'larger' if operation == 'maximum' else 'smaller'}<{t}>({a[0]}, {a[1]})"
        if operation == "sign":
            return f"sign_of<{t}>({a[0]})"
        if operation == "is_finite":
            return f"{a[0]} - {a[0]} == 0"
        if operation == "abs" and not np.issubdtype(own.dtype, np.floating):
            return f"{a[0]} < 0 ? -{a[0]} : {a[0]}"
        if operation == "remainder" and not np.issubdtype(own.dtype, np.floating):
            return f"{a[0]} % {a[1]}"
        name = {"abs": "fabs", "remainder": "fmod"}.get(operation, operation)
        return f"{name}{'f' if single else ''}({', '.join(a)})"


def _literal(value: Any) -> str:
    if value.dtype == bool:
        return "true" if value else "false"
    if not np.issubdtype(value.dtype, np.floating):
        suffix = {"int64": "ll", "uint64": "ull", "uint32": "u"}.get(value.dtype.name, "")
        return f"({int(value)}{suffix})"
    suffix = "f" if value.dtype == np.float32 else ""
    if np.isnan(value):
        return f"(0.0{suffix} / 0.0{suffix})"
    if np.isinf(value):
        return f"({'-' if value < 0 else ''}1.0{suffix} / 0.0{suffix})"
    return f"({float(value):.17g}{'' if any(c in f'{float(value):.17g}' for c in '.en') else '.0'}{suffix})"

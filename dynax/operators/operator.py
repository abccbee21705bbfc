"""Linear operators that are applied and never formed: composed, added, scaled, transposed, inverted (Jain, OPX).

    A @ x    A @ B    A + B    A - B    -A    2.0 * A    A.T    A.inv    A.solve(b)    A.dense()

A product keeps its factors and applies them from the right, each by its own rule, most of them by a sweep over the
bodies. Whatever the table of `dynax.operators.patterns` knows is replaced by one operator when it is composed.

Vectors are flat. Every operator is a pytree, so it goes through `jit`, `vmap` and `grad`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, overload

import jax
import jax.numpy as jnp

from dynax.operators.pytree import pytree_dataclass


class Operator(abc.ABC):
    """A linear map from vectors `(columns,)` to vectors `(rows,)`."""

    __array_ufunc__ = None  # a NumPy array times an operator is our `__rmatmul__` or `__rmul__`

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int]:
        """`(rows, columns)`."""

    @property
    def dtype(self) -> Any:
        """The floating type of its numbers."""
        return jnp.result_type(*jax.tree.leaves(self))

    @abc.abstractmethod
    def _apply(self, x: jax.Array) -> jax.Array:
        """`A x` for a matrix `x` of shape `(columns, m)`."""

    @abc.abstractmethod
    def _apply_transpose(self, y: jax.Array) -> jax.Array:
        """`A^T y` for a matrix `y` of shape `(rows, m)`."""

    @property
    def inv(self) -> Operator:
        """The inverse, as an operator. `ValueError` where none is known without forming a matrix."""
        raise ValueError(
            f"no inverse of {self!r} is known that is not formed as a matrix; invertible are block diagonals, 1 - E, "
            "phi and psi, 1 + H phi K, 1 - H psi K, H phi M phi.T H.T, and products of these"
        )

    @property
    def symmetric(self) -> bool:
        """Whether it is symmetric by its structure."""
        return self.positive

    @property
    def positive(self) -> bool:
        """Whether it is symmetric and positive semidefinite by its structure."""
        return False

    @property
    def T(self) -> Operator:
        """The transpose."""
        return self if self.symmetric else Transpose(self)

    def mv(self, x) -> jax.Array:
        """`A x` for a vector `(columns,)`, or for the columns of a matrix `(columns, m)`."""
        return _mv(self, self._checked(x, self.shape[1], "takes"))

    def rmv(self, y) -> jax.Array:
        """`A^T y` for a vector `(rows,)`, or for the columns of a matrix `(rows, m)`."""
        return _rmv(self, self._checked(y, self.shape[0], "transposed takes"))

    def solve(self, b) -> jax.Array:
        """`A^-1 b` for a vector or the columns of a matrix; `ValueError` where no inverse is known."""
        return _solve(self, self._checked(b, self.shape[0], "solves for"))

    def dense(self) -> jax.Array:
        """The matrix, by application to all unit vectors: for tests and small systems."""
        return _dense(self)

    def as_lineax(self):
        """This operator as a `lineax.AbstractLinearOperator`, tagged as symmetric and positive semidefinite if it is.

        Needs the package `lineax`.
        """
        import lineax

        tags = [lineax.symmetric_tag] * self.symmetric + [lineax.positive_semidefinite_tag] * self.positive
        return lineax.FunctionLinearOperator(self.mv, jax.ShapeDtypeStruct(self.shape[1:], self.dtype), tuple(tags))

    def _checked(self, x, size: int, verb: str) -> jax.Array:
        array = jnp.asarray(x)
        if array.ndim not in (1, 2) or array.shape[0] != size:
            raise ValueError(f"{self!r} {verb} vectors ({size},) or matrices ({size}, m), got shape {array.shape}")
        return array if jnp.issubdtype(array.dtype, jnp.inexact) else array.astype(self.dtype)

    @overload
    def __matmul__(self, other: Operator) -> Operator: ...

    @overload
    def __matmul__(self, other: jax.typing.ArrayLike) -> jax.Array: ...

    def __matmul__(self, other):
        return compose(self, other) if isinstance(other, Operator) else self.mv(other)

    def __rmatmul__(self, other):
        return self.rmv(jnp.asarray(other).T).T

    def __add__(self, other: Operator) -> Operator:
        return add(self, other, 1) if isinstance(other, Operator) else NotImplemented

    def __sub__(self, other: Operator) -> Operator:
        return add(self, other, -1) if isinstance(other, Operator) else NotImplemented

    def __neg__(self) -> Operator:
        return Sum((self,), (-1,))

    def __mul__(self, scale) -> Operator:
        if isinstance(scale, Operator) or jnp.ndim(scale):
            raise TypeError("`*` scales an operator by a number; operators are composed, and applied, by `@`")
        return Scaled(self, jnp.asarray(scale, self.dtype))

    __rmul__ = __mul__

    def __truediv__(self, scale) -> Operator:
        return self * (1.0 / scale)

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.shape}"


# Compiled as a whole when called outside of `jit`.


@jax.jit
def _mv(a: Operator, x: jax.Array) -> jax.Array:
    return _on_columns(a._apply, x)


@jax.jit
def _rmv(a: Operator, y: jax.Array) -> jax.Array:
    return _on_columns(a._apply_transpose, y)


@jax.jit
def _solve(a: Operator, b: jax.Array) -> jax.Array:
    return _on_columns(a.inv._apply, b)


@jax.jit
def _dense(a: Operator) -> jax.Array:
    return a._apply(jnp.eye(a.shape[1], dtype=a.dtype))


def _on_columns(apply: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
    return apply(x) if x.ndim == 2 else apply(x[:, None])[:, 0]


@pytree_dataclass("size", "kind")
class Identity(Operator):
    """The identity of vectors `(size,)`."""

    size: int
    kind: Any = None
    """The floating type of `dense()`, by default JAX's."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def dtype(self) -> Any:
        return jnp.result_type(self.kind or float)

    @property
    def positive(self) -> bool:
        return True

    @property
    def inv(self) -> Operator:
        return self

    def _apply(self, x: jax.Array) -> jax.Array:
        return x

    def _apply_transpose(self, y: jax.Array) -> jax.Array:
        return y


@pytree_dataclass()
class Transpose(Operator):
    """The transpose of an operator that is not symmetric; made by `.T`."""

    operator: Operator

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.operator.shape
        return columns, rows

    @property
    def inv(self) -> Operator:
        return self.operator.inv.T

    @property
    def T(self) -> Operator:
        return self.operator

    def _apply(self, x: jax.Array) -> jax.Array:
        return self.operator._apply_transpose(x)

    def _apply_transpose(self, y: jax.Array) -> jax.Array:
        return self.operator._apply(y)


Factors = tuple[Operator, ...]

# What is known of runs of factors, of sums, and of the inverses of sums; `dynax.operators.patterns` fills the lists.
PRODUCTS: list[Callable[[Factors], Operator | None]] = []
SUMS: list[Callable[[Sum], Operator | None]] = []
INVERSES: list[Callable[[Sum], Operator | None]] = []


def reduce_product(factors: Factors) -> Factors:
    """The factors with every known run of them replaced."""
    reduced = True
    while reduced:
        reduced = False
        for pattern in PRODUCTS:
            for start in range(len(factors)):
                for stop in range(len(factors), start + 1, -1):
                    known = pattern(factors[start:stop])
                    if known is not None:
                        factors, reduced = (*factors[:start], known, *factors[stop:]), True
                        break
    return factors


def reduce_sum(total: Sum) -> Operator:
    """The sum, or what it is known to be."""
    for pattern in SUMS:
        known = pattern(total)
        if known is not None:
            return known
    return total


def compose(a: Operator, b: Operator) -> Operator:
    """`a @ b`, with what is known about it put in its place."""
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"cannot compose {a!r} @ {b!r}: {a.shape[1]} columns against {b.shape[0]} rows")
    factors = tuple(f for x in (a, b) for f in factors_of(x) if not isinstance(f, Identity))
    factors = reduce_product(factors)
    return a if not factors else factors[0] if len(factors) == 1 else Product(factors)


def add(a: Operator, b: Operator, sign: int) -> Operator:
    """`a + sign b`, with what is known about it put in its place."""
    if a.shape != b.shape:
        raise ValueError(f"cannot add {a!r} and {b!r}: shapes {a.shape} and {b.shape}")
    first, second = (x if isinstance(x, Sum) else Sum((x,), (1,)) for x in (a, b))
    return reduce_sum(Sum(first.terms + second.terms, first.signs + tuple(sign * s for s in second.signs)))


def factors_of(a: Operator) -> tuple[Operator, ...]:
    return a.factors if isinstance(a, Product) else (a,)


def same(a: Operator, b: Operator) -> bool:
    """Whether two operators are one: equal in structure and made of the very same arrays."""
    if a is b:
        return True
    (x, kind), (y, other) = jax.tree.flatten(a), jax.tree.flatten(b)
    return kind == other and all(p is q for p, q in zip(x, y, strict=True))


def adjoint(a: Operator, b: Operator) -> bool:
    """Whether `a` is the transpose of `b`."""
    return same(a, b.T) or same(a.T, b)


def palindrome(factors: tuple[Operator, ...]) -> Operator | None:
    """The middle of `X Y .. Z .. Y^T X^T`, the identity if it has none, or `None` if the factors do not read so."""
    half = len(factors) // 2
    if not all(adjoint(factors[k], factors[-1 - k]) for k in range(half)):
        return None
    return factors[half] if len(factors) % 2 else Identity(factors[half].shape[0])


@pytree_dataclass()
class Scaled(Operator):
    """An operator times a number."""

    operator: Operator
    scale: jax.Array

    @property
    def shape(self) -> tuple[int, int]:
        return self.operator.shape

    @property
    def symmetric(self) -> bool:
        return self.operator.symmetric

    @property
    def inv(self) -> Operator:
        return Scaled(self.operator.inv, 1.0 / self.scale)

    @property
    def T(self) -> Operator:
        return Scaled(self.operator.T, self.scale)

    def _apply(self, x: jax.Array) -> jax.Array:
        return self.scale * self.operator._apply(x)

    def _apply_transpose(self, y: jax.Array) -> jax.Array:
        return self.scale * self.operator._apply_transpose(y)


@pytree_dataclass("signs")
class Sum(Operator):
    """Operators added and subtracted."""

    terms: tuple[Operator, ...]
    signs: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return self.terms[0].shape

    @property
    def symmetric(self) -> bool:
        return all(term.symmetric for term in self.terms)

    @property
    def positive(self) -> bool:
        return all(term.positive and sign > 0 for term, sign in zip(self.terms, self.signs, strict=True))

    @property
    def inv(self) -> Operator:
        return next(filter(None, (inverse(self) for inverse in INVERSES)), None) or super().inv

    @property
    def T(self) -> Operator:
        return self if self.symmetric else Sum(tuple(term.T for term in self.terms), self.signs)

    def _total(self, parts) -> jax.Array:
        signed = [part if sign > 0 else -part for part, sign in zip(parts, self.signs, strict=True)]
        return sum(signed[1:], signed[0])

    def _apply(self, x: jax.Array) -> jax.Array:
        return self._total([term._apply(x) for term in self.terms])

    def _apply_transpose(self, y: jax.Array) -> jax.Array:
        return self._total([term._apply_transpose(y) for term in self.terms])


@pytree_dataclass()
class Product(Operator):
    """Operators one after the other, the last one first."""

    factors: tuple[Operator, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return self.factors[0].shape[0], self.factors[-1].shape[1]

    @property
    def symmetric(self) -> bool:
        middle = palindrome(self.factors)
        return middle is not None and middle.symmetric

    @property
    def positive(self) -> bool:
        middle = palindrome(self.factors)
        return middle is not None and middle.positive

    @property
    def inv(self) -> Operator:
        """Factor by factor; `ValueError` if one of them has no inverse, even where the product has."""
        return _chain([factor.inv for factor in reversed(self.factors)])

    @property
    def T(self) -> Operator:
        return self if self.symmetric else _chain([factor.T for factor in reversed(self.factors)])

    def _apply(self, x: jax.Array) -> jax.Array:
        for factor in reversed(self.factors):
            x = factor._apply(x)
        return x

    def _apply_transpose(self, y: jax.Array) -> jax.Array:
        for factor in self.factors:
            y = factor._apply_transpose(y)
        return y


def _chain(factors: list[Operator]) -> Operator:
    product = factors[0]
    for factor in factors[1:]:
        product = compose(product, factor)
    return product

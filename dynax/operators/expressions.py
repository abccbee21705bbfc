"""Sums and products of operators, and how they are put together.

A sum keeps its terms with their signs, a product its factors; both are first shown to the table of
`dynax.operators.patterns`, which may know something better.
"""

from __future__ import annotations

import jax

from dynax.operators.operator import Identity, Operator
from dynax.operators.pytree import pytree_dataclass


def compose(a: Operator, b: Operator) -> Operator:
    """`a @ b`, with what is known about it put in its place."""
    from dynax.operators.patterns import reduce_product

    if a.shape[1] != b.shape[0]:
        raise ValueError(f"cannot compose {a!r} @ {b!r}: {a.shape[1]} columns against {b.shape[0]} rows")
    factors = tuple(f for x in (a, b) for f in factors_of(x) if not isinstance(f, Identity))
    factors = reduce_product(factors)
    return a if not factors else factors[0] if len(factors) == 1 else Product(factors)


def add(a: Operator, b: Operator, sign: int) -> Operator:
    """`a + sign b`, with what is known about it put in its place."""
    from dynax.operators.patterns import reduce_sum

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
        from dynax.operators.patterns import inverse_of_sum

        return inverse_of_sum(self) or super().inv

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

"""What the peers written in JAX have in common: batches by `vmap`, derivatives by JAX. Needs JAX and NumPy only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.bodies import Bodies
from benchmarks.case import Case
from benchmarks.jax_calls import Call, as_type, compile_block, use_precision
from benchmarks.timing import Contender

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]
Function = Callable[[Any, Any, Any, Any], Any]


class Unsupported(Exception):
    """Why a peer has no part in a case."""


class JaxPeer(ABC):
    engine: str
    options: Mapping[str, Any] | None = None
    """Of the compiler, where its defaults do the peer an injustice."""

    @abstractmethod
    def model(self, bodies: Bodies) -> Any:
        """Its model, a pytree."""

    @abstractmethod
    def function(self, what: str, bodies: Bodies) -> Function:
        """A quantity as a function of its model, configuration, velocity, and force or acceleration; or raises
        `Unsupported`."""

    def to(self, bodies: Bodies, arrays: Arrays) -> Arrays:
        """The states as it takes them."""
        return arrays

    def back(self, what: str, bodies: Bodies, answer: Any) -> Any:
        """Its results in the conventions the states came in."""
        return answer

    def contenders(self, case: Case, bodies: Bodies, arrays: Arrays) -> list[Contender]:
        use_precision(case.double)
        model = as_type(self.model(bodies), case.dtype)
        batch = tuple(jnp.asarray(x, case.dtype) for x in self.to(bodies, arrays))
        one = (model, *(x[0] for x in batch))
        forward = partial(self.function, bodies=bodies)
        match case.what:
            case "compile":
                block = compile_block(forward(case.of), one, case.double, self.options)
                return [Contender(self.engine, case.of, block)]
            case "lone":
                # As an argument the models of MJX and Brax cost 200 us a call, before anything is computed.
                empty = Call(lambda q, v, x: x, one[1:], case.double, self.options)
                return [
                    self._timed(case, bodies, "model a constant", partial(forward("fd"), model), one[1:]),
                    Contender(self.engine, "empty", empty.block()),
                ]
            case "vjp":
                return [
                    self._timed(case, bodies, "forward", _batched(forward("fd")), (model, *batch), checked=False),
                    self._timed(case, bodies, "vjp", _batched(gradient(forward("fd"))), (model, *batch)),
                ]
            case "dfd":
                jacobian = jax.jacfwd(forward("fd"), argnums=(1, 2, 3))
                return [self._timed(case, bodies, "jax.jacfwd", _batched(jacobian), (model, *batch))]
        return [self._timed(case, bodies, "jax.vmap", _batched(forward(case.what)), (model, *batch))]

    def _timed(
        self, case: Case, bodies: Bodies, route: str, function: Callable, arguments: tuple, checked: bool = True
    ) -> Contender:
        call = Call(function, arguments, case.double, self.options)
        answer = self.back(case.what, bodies, call.answer(case.batch)) if checked else None
        return Contender(self.engine, route, call.block(), answer, case.batch, first=call.first, note=self.note)

    @property
    def note(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in (self.options or {}).items())


def _batched(function: Function) -> Callable:
    return jax.vmap(function, in_axes=(None, 0, 0, 0))


def gradient(function: Function) -> Function:
    """The reverse-mode derivative along the vector that dynax is given, see `benchmarks.ours.cotangent`."""

    def along(model: Any, q: jax.Array, v: jax.Array, x: jax.Array) -> Any:
        value, back = jax.vjp(partial(function, model), q, v, x)
        return back(jnp.cos(jnp.arange(value.shape[-1])).astype(value.dtype))

    return along

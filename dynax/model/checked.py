"""A model from its numbers, checked: the last step of every builder and of every file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from dynax.model.model import Model
from dynax.model.numbers import POSES, check_numbers, narrowed, number_shapes, without_subnormal
from dynax.model.structure import Structure
from dynax.model.unresisted import unresisted
from dynax.spatial import Transform


def model_of(structure: Structure, numbers: Mapping[str, np.ndarray], dtypes: Mapping[str, Any]) -> Model:
    """The model whose leaves hold `numbers` in the floating types `dtypes`; what is odd about them joins its report.

    **Arguments:** `numbers`: float64, by the names of `number_shapes`, batch axes in front allowed; `dtypes`: by the
    same names; float64 is float32 where JAX's x64 mode is off.

    Raises `ModelError` for numbers no model can have.
    """
    kept = {name: narrowed(number, dtypes[name]) for name, number in numbers.items()}
    findings = check_numbers(structure, numbers, kept)
    if all(numbers[name].shape == shape for name, shape in number_shapes(structure).items()):
        findings += unresisted(structure, {name: without_subnormal(numbers[name], kept[name]) for name in numbers})
    new = dict.fromkeys(finding for finding in findings if finding not in structure.report)
    if new:
        structure = dataclasses.replace(structure, report=(*structure.report, *new))
    leaves: dict[str, Any] = {name: jnp.asarray(number) for name, number in kept.items() if "." not in name}
    for name in POSES:
        rotation, translation = kept[f"{name}.rotation"], kept[f"{name}.translation"]
        leaves[name] = Transform(jnp.asarray(rotation), jnp.asarray(translation))
    return Model(**leaves, structure=structure)

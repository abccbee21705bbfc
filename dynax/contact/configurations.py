"""Configurations of a scene are those of its model: contact has no say in how joints are counted.

What it has a say in, such as `forward_dynamics`, has no meaning for a scene; `scene.model` is without contact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynax.contact.scene import Scene
from dynax.model.configuration import (
    bracket_rows,
    configuration_rate,
    difference,
    difference_rows,
    integrate,
    integrate_rows,
    neutral,
    normalize,
    random_configuration,
    rate_rows,
    tangent_rows,
)
from dynax.model.kinds import extend


def _of_its_model(function: Callable[..., Any]) -> None:
    @extend(function, Scene)
    def _(scene: Scene, *args: Any, **options: Any) -> Any:
        return function(scene.model, *args, **options)


for _function in (
    *(bracket_rows, configuration_rate, difference, difference_rows, integrate, integrate_rows, neutral, normalize),
    *(random_configuration, rate_rows, tangent_rows),
):
    _of_its_model(_function)

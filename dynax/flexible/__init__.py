"""Flexible bodies: what a body that bends is, without a tree."""

from dynax.flexible.body import FlexibleBody as FlexibleBody

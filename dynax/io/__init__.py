"""Readers of robot descriptions, converters of state, and saving."""

from dynax.io.load import load as load

"""Derivatives in closed form, and the one differentiation rule of forward dynamics."""

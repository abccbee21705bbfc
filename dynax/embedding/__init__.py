"""Loops embedded in the tree: aggregates, their coefficients, and what every function means for such a model."""

from dynax.embedding import meanings as meanings
from dynax.embedding import operators as operators

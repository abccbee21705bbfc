"""Trees whose coordinates follow from others: loops embedded in them, bodies that bend."""

from dynax.embedding import flexible_configurations as flexible_configurations
from dynax.embedding import flexible_embedded as flexible_embedded
from dynax.embedding import flexible_loops as flexible_loops
from dynax.embedding import flexible_meanings as flexible_meanings
from dynax.embedding import flexible_operators as flexible_operators
from dynax.embedding import flexible_validity as flexible_validity
from dynax.embedding import meanings as meanings
from dynax.embedding import operators as operators

"""The Spatial Operator Algebra as objects: compose, transpose, factor, invert, apply in O(n)."""

from dynax.operators import patterns as _patterns  # noqa: F401  it fills the lists of what is known
from dynax.operators.articulated import Articulated as Articulated
from dynax.operators.articulated import articulated as articulated
from dynax.operators.blocks import BlockDiagonal as BlockDiagonal
from dynax.operators.blocks import Blocks as Blocks
from dynax.operators.blocks import ChildToParent as ChildToParent
from dynax.operators.blocks import Propagation as Propagation
from dynax.operators.operator import Identity as Identity
from dynax.operators.operator import Operator as Operator
from dynax.operators.pickoff import PickOff as PickOff

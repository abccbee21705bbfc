"""Spatial algebra: rotations, poses, motions, forces and inertias. Imports nothing else of dynax.

`plucker` and `planar` hold the same algebra as plain matrices, for teaching, tests and operators.
"""

from dynax.spatial import planar as planar
from dynax.spatial import plucker as plucker
from dynax.spatial.components import Mat3 as Mat3
from dynax.spatial.components import Scalar as Scalar
from dynax.spatial.components import Sym3 as Sym3
from dynax.spatial.components import Vec3 as Vec3
from dynax.spatial.exponential import Exponential as Exponential
from dynax.spatial.inertia import ArticulatedInertia as ArticulatedInertia
from dynax.spatial.inertia import RigidInertia as RigidInertia
from dynax.spatial.inertia import SpatialInertia as SpatialInertia
from dynax.spatial.motion import Force as Force
from dynax.spatial.motion import Motion as Motion
from dynax.spatial.motion import classical_acceleration as classical_acceleration
from dynax.spatial.motion import spatial_acceleration as spatial_acceleration
from dynax.spatial.quaternion import Quaternion as Quaternion
from dynax.spatial.screw import Screw as Screw
from dynax.spatial.screw import screw_decomposition as screw_decomposition
from dynax.spatial.transform import Rotation as Rotation
from dynax.spatial.transform import Transform as Transform

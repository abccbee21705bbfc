"""Joint types, one per file. Imports only `spatial`."""

from dynax.joints.base import AbstractJoint as AbstractJoint
from dynax.joints.base import JointMotion as JointMotion
from dynax.joints.closure import AbstractClosure as AbstractClosure
from dynax.joints.closure import Distance as Distance
from dynax.joints.closure import JointClosure as JointClosure
from dynax.joints.cylindrical import Cylindrical as Cylindrical
from dynax.joints.driven import Driven as Driven
from dynax.joints.free import Free as Free
from dynax.joints.gimbal import Gimbal as Gimbal
from dynax.joints.planar import Planar as Planar
from dynax.joints.reversed import Reversed as Reversed
from dynax.joints.rolling import RackAndPinion as RackAndPinion
from dynax.joints.rolling import Rolling as Rolling
from dynax.joints.rolling import RollingBall as RollingBall
from dynax.joints.screws import Helical as Helical
from dynax.joints.screws import Prismatic as Prismatic
from dynax.joints.screws import Revolute as Revolute
from dynax.joints.sphere_in_cylinder import SphereInCylinder as SphereInCylinder
from dynax.joints.spherical import Spherical as Spherical
from dynax.joints.translation import Translation as Translation
from dynax.joints.universal import Universal as Universal
from dynax.joints.user import UserJoint as UserJoint
from dynax.joints.weld import Weld as Weld

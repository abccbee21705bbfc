"""Readers of robot descriptions, converters of state, and saving."""

from dynax.io.convert import JointState as JointState
from dynax.io.convert import MujocoConverter as MujocoConverter
from dynax.io.convert import PinocchioConverter as PinocchioConverter
from dynax.io.load import load as load
from dynax.io.mjcf import keyframes as keyframes
from dynax.io.save import save as save

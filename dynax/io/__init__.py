"""Readers of robot descriptions, converters of state, and saving."""

from dynax.io.convert import JointState as JointState
from dynax.io.convert_drake import DrakeConverter as DrakeConverter
from dynax.io.convert_jaxsim import JaxsimConverter as JaxsimConverter
from dynax.io.convert_mujoco import MujocoConverter as MujocoConverter
from dynax.io.convert_pinocchio import PinocchioConverter as PinocchioConverter
from dynax.io.installed import installed_robots as installed_robots
from dynax.io.load import load as load
from dynax.io.load_actuators import load_actuators as load_actuators
from dynax.io.load_actuators import load_sensors as load_sensors
from dynax.io.matrices import load_finite_elements as load_finite_elements
from dynax.io.matrices import load_flexible_body as load_flexible_body
from dynax.io.matrices import save_finite_elements as save_finite_elements
from dynax.io.matrices import save_flexible_body as save_flexible_body
from dynax.io.matrix_market import read_matrix_market as read_matrix_market
from dynax.io.matrix_market import write_matrix_market as write_matrix_market
from dynax.io.mjcf import keyframes as keyframes
from dynax.io.rewrite import rewrite as rewrite
from dynax.io.save import save as save
from dynax.io.scene import load_scene as load_scene
from dynax.io.write_mjcf import write_mjcf as write_mjcf
from dynax.io.write_sdf import write_sdf as write_sdf
from dynax.io.write_urdf import write_urdf as write_urdf

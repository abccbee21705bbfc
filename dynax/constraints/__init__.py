"""Closed loops, gears and couplings: residuals, Jacobians and biases, and the ways to solve the motion under them."""

from dynax.constraints import embedded as embedded
from dynax.constraints import embedded_factor as embedded_factor
from dynax.constraints import embedded_operators as embedded_operators

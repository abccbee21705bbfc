"""Closed loops, gears and couplings: residuals, Jacobians and biases, and the ways to solve the motion under them."""

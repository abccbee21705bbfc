"""Trajectories, controllers and designs by gradient."""

from dynax.optimize.lqr import LQ as LQ
from dynax.optimize.lqr import LQSolution as LQSolution
from dynax.optimize.lqr import Policy as Policy
from dynax.optimize.lqr import solve_lqr as solve_lqr

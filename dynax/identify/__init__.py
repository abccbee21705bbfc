"""Models from data: what a log can say about a robot, and the robot that it says."""

from dynax.identify.identifiability import Identifiability as Identifiability
from dynax.identify.identifiability import identifiability as identifiability
from dynax.identify.identifiability import identifiability_of as identifiability_of
from dynax.identify.regressors import base_wrench_regressor as base_wrench_regressor
from dynax.identify.regressors import energy_regressor as energy_regressor
from dynax.identify.regressors import momentum_rate_regressor as momentum_rate_regressor
from dynax.identify.regressors import momentum_regressor as momentum_regressor
from dynax.identify.regressors import power_regressor as power_regressor
from dynax.identify.regressors import random_regressor as random_regressor
from dynax.identify.regressors import regressor as regressor
from dynax.identify.terms import Term as Term
from dynax.identify.terms import parameter_names as parameter_names
from dynax.identify.terms import parameter_vector as parameter_vector
from dynax.identify.terms import with_parameter_vector as with_parameter_vector

"""The model, how it is built and edited."""

from dynax.model.builder import ModelBuilder as ModelBuilder
from dynax.model.model import Model as Model
from dynax.model.structure import Finding as Finding

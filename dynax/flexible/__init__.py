"""Flexible bodies: what a body that bends is, without a tree."""

from dynax.flexible.beam import BeamSection as BeamSection
from dynax.flexible.beam import beam_elements as beam_elements
from dynax.flexible.beam import flexible_beam as flexible_beam
from dynax.flexible.body import FlexibleBody as FlexibleBody
from dynax.flexible.elements import FiniteElements as FiniteElements
from dynax.flexible.modes import Modes as Modes
from dynax.flexible.nodal import flexible_body_from_nodes as flexible_body_from_nodes

"""The demonstration behind `dynax demo`: check, roll out a batch, reach a target, identify masses, draw a page."""

from dynax.demo.main import run as run

"""Beside Exudyn 1.13.6: digits of `benchmarks/peers/exudyn.py`, which builds the same model in both."""

from __future__ import annotations

import jax
import numpy as np

import dynax as dx

TIP = [
    [3.001260299, -0.232301324, -0.096267985],
    [2.985093989, -0.463230113, -0.191996101],
    [2.951598324, -0.691554312, -0.287137877],
    [2.900997162, -0.915853338, -0.381201204],
    [2.833911513, -1.134881160, -0.472246085],
    [2.751094153, -1.347759697, -0.558731618],
    [2.652892107, -1.553463387, -0.641263236],
    [2.539595914, -1.750574774, -0.720799150],
    [2.412231340, -1.937967223, -0.795971751],
    [2.272354204, -2.115188777, -0.864122025],
]
"""Every tenth of a second [m]; halving Exudyn's step for the last time moved it by 1e-6, and the limit is better."""


def test_a_hub_and_a_beam_move_as_there():
    """Spin, drift, and four modes of some millimetres: to 1e-6 m over a second."""
    section = dx.BeamSection(EA=1e6, EIy=6000.0, EIz=9000.0, GJ=5000.0, mass_per_length=0.8)
    elements = dx.beam_elements(section, 3.0, elements=6, lumped=True)
    beam = elements.body(elements.modes(4, held={"base": "123456"}), level="full")
    builder = dx.ModelBuilder(gravity=(0, 0, 0))
    builder.body("hub", joint=dx.Free(), inertia=dx.SpatialInertia(6.0, (0, 0, 0), (0.36, 0.36, 0.36)))
    model = builder.body("beam", parent="hub", inertia=beam).build()
    v = np.array([0.4, 0.5, -0.6, 0.1, -0.2, 0.3, 0.2, -0.3, 0.2, 0.1])

    @jax.jit
    def tips(v):
        path = dx.rollout(
            model, dx.neutral(model), v, np.zeros((2000, model.nv)), 5e-4, stepper="rk4", every=200, checkpoint=False
        )
        return jax.vmap(lambda q: dx.frame_pose(model, q, "beam/tip").translation)(path.q[1:])

    np.testing.assert_allclose(tips(v), TIP, rtol=0.0, atol=1e-6)

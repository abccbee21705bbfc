"""Beams have the frequencies of the books, whatever the modes, and turn as they should."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx

UNIT = dx.BeamSection(EA=1e4, EIy=1.0, EIz=1.0, GJ=1.0, mass_per_length=1.0)
"""Frequencies in units of `sqrt(EI / (rho A L^4))`, for a length of one."""


def frequencies(elements: int, held: dict, count: int) -> np.ndarray:
    """Of bending in one plane, for which all freedoms out of it are held."""
    beam = dx.beam_elements(UNIT, 1.0, elements=elements)
    flat = dict.fromkeys(range(elements + 1), "1345")
    for name, digits in held.items():
        flat[beam.node_names[name]] += digits
    return beam.modes(count, held=flat).frequencies


BENDING = {
    "cantilever": ({"base": "26"}, [3.51601527, 22.03449156, 61.69721441, 120.90191605]),
    "free": ({}, [22.37328545, 61.67282287, 120.90339173]),
    "pinned and free": ({"base": "2"}, [15.41820572, 49.96486203, 104.24769646]),
}


@pytest.mark.spec("B-BEAM", "FLEX-MODES")
@pytest.mark.parametrize("case", BENDING)
def test_frequencies_of_a_beam(case):
    """The error is the known one of cubic elements, (beta h)^4 / 1440 for frequencies; without it, all digits stand."""
    held, exact = BENDING[case]
    exact = np.array(exact)
    coarse, fine = (frequencies(n, held, len(exact)) for n in (20, 40))
    np.testing.assert_allclose(fine / exact - 1.0, exact**2 / 40**4 / 1440.0, rtol=0.02, atol=2e-9)
    np.testing.assert_allclose(fine + (fine - coarse) / 15.0, exact, rtol=2e-7)


@pytest.mark.spec("B-BEAM")
def test_effective_masses_and_a_static_load():
    beam = dx.beam_elements(UNIT, 1.0, elements=40)
    held = dict.fromkeys(range(41), "1345") | {0: "123456"}
    body = beam.body(beam.modes(5, held=held))
    effective = np.asarray(body.translation_coupling)[1] ** 2
    np.testing.assert_allclose(effective[:4], [0.61307609, 0.18830036, 0.06473223, 0.03308689], atol=2e-7)
    tip = np.asarray(body.node_translation)[body.node_index("tip"), 1]
    shares = np.cumsum(tip**2 / np.diag(body.stiffness)) * 3.0  # of the deflection L^3 / (3 EI)
    np.testing.assert_allclose(shares[[0, 4]], [0.97068818, 0.99967784], atol=2e-7)


@pytest.mark.spec("B-ROT", "FLEX-GEO")
def test_frequencies_of_a_turning_beam():
    """Flap, out of the plane in which the beam turns, and lag, in it, where the centrifugal force bends it outwards."""
    flap = {1: [3.68164681, 22.18101], 2: [4.13731957, 22.61492], 3: [4.79727853, 23.32026], 6: [7.36037302],
            10: [11.20232776], 12: [13.17015]}  # fmt: skip
    beam = dx.beam_elements(UNIT, 1.0, elements=12)

    @jax.jit
    def added_stiffness(body, omega):
        """Linear in the modes: the derivative of the gyroscopic force at rest, in the frame that turns."""
        zero = jnp.zeros(24)
        return jax.jacfwd(lambda eta: body.gyroscopic_force(eta, zero, omega, jnp.zeros(3))[:24])(zero)

    for across, others in (("flap", "1246"), ("lag", "1345")):
        # All modes there are in the plane: those of a beam at rest take many to bend as one that turns.
        body = beam.body(beam.modes(24, held=dict.fromkeys(range(13), others) | {0: "123456"}))
        for speed, flapping in flap.items():
            omega = np.array([0.0, 0.0, float(speed)])
            added = added_stiffness(body, omega)
            found = np.linalg.eigvalsh(body.stiffness + added)[: len(flapping)]
            if across == "flap":  # nothing but the geometric stiffness acts out of the plane
                np.testing.assert_allclose(added, body.geometric_stiffness(omega, np.zeros(3), np.zeros(3)), atol=1e-9)
            else:
                found += speed**2
            np.testing.assert_allclose(np.sqrt(found), flapping, rtol=2e-5)


def spin_up(level: str, until: float, step: float = 0.005) -> np.ndarray:
    """Deflection of the tip of Kane's beam, its hub turned as given: modes alone, by a Runge-Kutta method."""
    section = dx.BeamSection(EA=2.8e7, EIy=1.4e4, EIz=1.4e4, GJ=1e4, mass_per_length=1.2)
    beam = dx.beam_elements(section, 10.0, elements=20)
    held = dict.fromkeys(range(21), "1345") | {0: "123456"}
    body = beam.body(beam.modes(4, held=held), level=level)

    def rate(t, state):
        eta, etad = state
        going = t < 15.0
        phase = 2.0 * jnp.pi * t / 15.0
        speed = jnp.where(going, 0.4 * (t - 15.0 / (2.0 * jnp.pi) * jnp.sin(phase)), 6.0)
        faster = jnp.where(going, 0.4 * (1.0 - jnp.cos(phase)), 0.0)
        spin, zero = jnp.array([0.0, 0.0, 1.0]), jnp.zeros(3)
        pull = body.gyroscopic_force(eta, etad, speed * spin, zero)[:4]
        pull += body.mass_matrix(eta)[:4, 4:7] @ (faster * spin)
        return etad, -pull - body.stiffness @ eta

    def advance(state, t):
        def moved(k, h):
            return jax.tree.map(lambda x, dx: x + h * dx, state, k)

        k1 = rate(t, state)
        k2 = rate(t + step / 2, moved(k1, step / 2))
        k3 = rate(t + step / 2, moved(k2, step / 2))
        k4 = rate(t + step, moved(k3, step))
        slope = jax.tree.map(lambda a, b, c, d: (a + 2 * b + 2 * c + d) / 6, k1, k2, k3, k4)
        state = moved(slope, step)
        return state, body.node_translation[1, 1] @ state[0]

    times = step * jnp.arange(round(until / step))
    return np.asarray(jax.jit(lambda: jax.lax.scan(advance, (jnp.zeros(4), jnp.zeros(4)), times)[1])())


@pytest.mark.spec("B-SPIN", "FLEX-GEO", "FLEX-RUTH")
@pytest.mark.parametrize(
    ("level", "lowest", "when", "at_ten"),
    [("consistent", -0.57434, 6.76, -0.36268), ("ruthless", -0.62916, 7.735, -0.47711), ("full", None, None, -72.0)],
)
def test_a_beam_spun_up(level, lowest, when, at_ten):
    """Kane's beam: it comes to rest if foreshortening stiffens it, and runs away without."""
    tip = spin_up(level, 20.0)
    np.testing.assert_allclose(tip[1999], at_ten, rtol=2e-3 if level == "full" else 2e-5)
    if level == "full":
        assert np.abs(tip[2999]) > 1e3
        return
    np.testing.assert_allclose(tip.min(), lowest, atol=2e-5)
    np.testing.assert_allclose(0.005 * (1 + tip.argmin()), when, atol=0.01)
    assert np.abs(tip[3000:]).max() < (3.65e-3 if level == "consistent" else 0.1)

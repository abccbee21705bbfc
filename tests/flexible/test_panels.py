"""Panels have the frequencies of the books, and are drawn in as they bend like a beam of the same stiffness."""

from __future__ import annotations

import numpy as np
import pytest

import dynax as dx

UNIT = dx.PanelSection(bending=1.0, membrane=1e4, mass_per_area=1.0)
"""Frequencies in units of `sqrt(D / (rho h a^4))`, for a length of one."""
EDGES = ("root edge", "tip edge", "left edge", "right edge")


@pytest.mark.spec("FLEX-MODES", "FLEX-DATA")
def test_frequencies_of_a_square_cantilever_plate():
    """Leissa, "Vibration of plates" (1969), and later computations of more digits, for a Poisson's ratio of 0.3."""
    exact = np.array([3.4711, 8.5067, 21.285, 27.199, 30.957])
    panel = dx.panel_elements(UNIT, 1.0, 1.0, elements=(6, 6))
    found = panel.modes(5, held={"root edge": "123456"}).frequencies
    np.testing.assert_allclose(found, exact, rtol=6e-3)


def test_frequencies_of_a_simply_supported_plate():
    """`pi^2 (m^2 + n^2)` for a square; most of the error goes with the square of the elements' size."""
    exact = np.pi**2 * np.array([2.0, 5.0, 5.0])
    errors = []
    for n in (4, 8):
        panel = dx.panel_elements(UNIT, 1.0, 1.0, elements=(n, n))
        bending = panel.modes(3, held=dict.fromkeys(range((n + 1) ** 2), "126") | dict.fromkeys(EDGES, "3"))
        errors.append(bending.frequencies / exact - 1.0)
    coarse, fine = errors
    np.testing.assert_allclose(fine, 0.0, atol=0.013)
    np.testing.assert_allclose(fine + (fine - coarse) / 3.0, 0.0, atol=3.5e-3)


@pytest.mark.spec("FLEX-GEO")
def test_a_strip_is_a_beam():
    """Without Poisson's effect: bending, inertia and foreshortening."""
    width = 0.1
    strip = dx.panel_elements(dx.PanelSection(1.0, 1e4, 1.0, poisson=0.0), 1.0, width, elements=(10, 2))
    section = dx.BeamSection(EA=1e4 * width, EIy=width, EIz=1.0, GJ=1.0, mass_per_length=width)
    beam = dx.beam_elements(section, 1.0, elements=10)
    held = dict.fromkeys(range(33), "246") | {"root edge": "123456"}
    one = strip.body(strip.modes(3, held=held))
    other = beam.body(beam.modes(3, held=dict.fromkeys(range(11), "246") | {"base": "123456"}))
    assert one.level == "consistent"
    np.testing.assert_allclose(np.diag(one.stiffness), np.diag(other.stiffness), rtol=1e-3)
    np.testing.assert_allclose(np.abs(one.translation_coupling), np.abs(other.translation_coupling), atol=1e-3)
    signs = np.sign(np.asarray(one.node_translation)[1, 2] * np.asarray(other.node_translation)[1, 2])
    for name in ("foreshortening", "node_foreshortening"):
        wanted = np.asarray(getattr(other, name)) * np.outer(signs, signs)[..., None]
        np.testing.assert_allclose(getattr(one, name), wanted, atol=1e-2 * np.abs(wanted).max())
    spin, zero = np.array([0.0, 1.0, 0.0]), np.zeros(3)
    found = [np.linalg.eigvalsh(b.stiffness + b.geometric_stiffness(100 * spin, zero, zero)) for b in (one, other)]
    np.testing.assert_allclose(*found, rtol=1e-2)


def test_a_panel_anywhere_is_a_structure():
    """Turned and shifted: the same body in other axes, with all its rigid motions free of strain."""
    place = dx.panel_elements(
        UNIT, 2.0, 1.0, elements=(4, 2), direction=(1, 1, 0), normal=(0.2, -0.2, 1), origin=(1, 2, 3)
    )
    report = dx.check_elements(place)
    assert (report.rigid, report.rigid_by_position) == (6, 6)
    np.testing.assert_allclose(report.mass, 2.0)
    np.testing.assert_allclose(report.inertia, [2 / 12, 8 / 12, 10 / 12], rtol=1e-10)
    here = dx.panel_elements(UNIT, 2.0, 1.0, elements=(4, 2))
    one, other = (p.body(p.modes(4, held={"root edge": "123456"})) for p in (place, here))
    np.testing.assert_allclose(np.diag(one.stiffness), np.diag(other.stiffness), rtol=1e-9)
    free = dx.flexible_panel(UNIT, 2.0, 1.0, modes=4, held={}, elements=(4, 2))
    np.testing.assert_allclose(free.translation_coupling, 0.0, atol=1e-9)
    np.testing.assert_allclose(free.rotation_coupling, 0.0, atol=1e-9)


def test_what_is_no_panel_is_refused():
    with pytest.raises(dx.ModelError, match="has no node; the nearest is at"):
        dx.panel_elements(UNIT, 1.0, 1.0, elements=(4, 3))
    with pytest.raises(dx.ModelError, match="`bending` is -1"):
        dx.PanelSection(-1.0, 1.0, 1.0)
    with pytest.raises(dx.ModelError, match="must not be parallel"):
        dx.panel_elements(UNIT, 1.0, 1.0, direction=(0, 0, 1))

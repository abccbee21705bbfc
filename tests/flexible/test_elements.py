"""Any set of modes gives the same structure, and matrices alone what elements know, where they can."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dynax as dx

UNIT = dx.BeamSection(EA=1e4, EIy=2.0, EIz=1.0, GJ=1.0, mass_per_length=1.0, inertia_per_length=(1e-3, 0.0, 0.0))
ROOT = {"base": "123456"}


def flat(elements: int) -> tuple[dx.FiniteElements, dict]:
    """A beam, and what keeps it in its xy plane."""
    return dx.beam_elements(UNIT, 1.0, elements=elements), dict.fromkeys(range(elements + 1), "1345")


def in_plane(body: dx.FlexibleBody, count: int, *, shifts: bool) -> np.ndarray:
    """Frequencies of a body whose frame turns about z, and shifts along y, if it is free to."""
    m, rows = body.num_modes, slice(2 if shifts else 1)
    coupling = np.stack([body.rotation_coupling[2], body.translation_coupling[1]])[rows]
    frame = np.array([[body.inertia[2, 2], body.first_moment[0]], [body.first_moment[0], body.mass]])[rows, rows]
    mass = np.block([[np.asarray(body.modal_mass), coupling.T], [coupling, frame]])
    stiffness = np.zeros_like(mass)
    stiffness[:m, :m] = body.stiffness
    values = np.sort(np.linalg.eigvals(np.linalg.solve(mass, stiffness)).real)
    return np.sqrt(values[len(frame) :][:count])


@pytest.mark.spec("B-BEAM", "FLEX-MODES")
def test_few_modes_of_a_cantilever_on_a_hinge_and_on_a_free_base():
    """What a set of modes misses of a beam held otherwise: the published table."""
    beam, plane = flat(40)
    held = plane | {0: "123456"}
    hinge = {1: 20.53664, 2: 15.43517, 3: 15.41940, 5: 15.41824, 8: 15.418207}
    free = {2: 22.47662, 3: 22.39942, 5: 22.37658, 8: 22.37369}
    second = {3: 50.12742, 5: 49.96938, 8: 49.965036}
    for count in (1, 2, 3, 5, 8):
        body = beam.body(beam.modes(count, held=held))
        turning = in_plane(body, 2, shifts=False)
        np.testing.assert_allclose(turning[0], hinge[count], rtol=1e-6)
        if count in second:
            np.testing.assert_allclose(turning[1], second[count], rtol=2e-6)
        if count in free:
            np.testing.assert_allclose(in_plane(body, 1, shifts=True)[0], free[count], rtol=1e-6)


@pytest.mark.spec("FLEX-MODES", "FLEX-CB")
def test_every_complete_set_of_modes_has_the_frequencies_of_the_structure():
    """Of a free beam with a frame that carries it: cantilever, free, pinned, Craig and Bampton's, attachment modes."""
    beam, plane = flat(3)
    free = beam.modes(6, held=plane)
    assert free.rigid == 2
    exact = free.frequencies
    sets = {
        "cantilever": beam.modes(6, held=plane | {0: "123456"}),
        "other end": beam.modes(6, held=plane | {3: "123456"}),
        "free": free,
        "pinned": beam.modes(6, held=plane | {0: "12345", 3: "12345"}),
        "craig bampton": beam.modes(4, held=plane | {0: "123456"}, boundary={3: "26"}),
        "attachment": beam.modes(4, held=plane | {0: "123456"}, loaded={3: "26"}),
    }
    tip = sets["craig bampton"].shapes[[beam.select({3: "2"})[0], beam.select({3: "6"})[0]]]
    np.testing.assert_array_equal(tip, np.eye(2, 6))
    for name, modes in sets.items():
        found = in_plane(beam.body(modes), 6, shifts=True)
        np.testing.assert_allclose(found, exact, rtol=1e-7, err_msg=name)


def test_modes_do_not_depend_on_the_solver():
    """Equal bending stiffness in both planes: modes of equal frequency still lie in a plane each."""
    section = dx.BeamSection(EA=1e4, EIy=1.0, EIz=1.0, GJ=1.0, mass_per_length=1.0)
    modes = dx.beam_elements(section, 1.0, elements=8).modes(6, held=ROOT)
    tip = modes.shapes[-6:-3]
    assert np.all(np.sort(np.abs(tip), axis=0)[:2] < 1e-6)
    assert np.all(modes.shapes[np.argmax(np.abs(modes.shapes), axis=0), np.arange(6)] > 0.0)


@pytest.mark.spec("FLEX-CB")
def test_static_modes():
    beam, plane = flat(4)
    held, loaded = plane | {0: "123456"}, {4: "2"}
    static = beam.modes(0, held=held, loaded=loaded)
    np.testing.assert_allclose(static.shapes[beam.select(loaded)], 1.0 / 3.0, rtol=1e-10)  # L^3 / (3 EI)
    relieved = beam.modes(0, held=plane, loaded=loaded)
    assert relieved.rigid == 2
    np.testing.assert_allclose(beam.rigid_motions.T @ beam.mass @ relieved.shapes, 0.0, atol=1e-12)
    damped = relieved.damping(0.02)
    np.testing.assert_allclose(damped, 0.04 * relieved.frequencies * relieved.mass, rtol=1e-10)


@pytest.mark.spec("FLEX-DATA", "FLEX-MM")
def test_matrices_alone_give_what_elements_know():
    """Order zero exactly, higher orders as the elements get smaller; lumped masses exactly."""
    apart, thin = [], replace(UNIT, inertia_per_length=(0.0, 0.0, 0.0))
    for count in (8, 16):
        beam = dx.beam_elements(thin, 1.0, elements=count, direction=(1, 2, -1), origin=(0.1, 0.2, 0.3))
        modes = beam.modes(4, held=ROOT)
        known, matrix = (
            e.body(modes, level="full")
            for e in (beam, dx.FiniteElements(beam.mass, beam.stiffness, beam.position, None, beam.node_names))
        )
        zero = np.zeros(4)
        np.testing.assert_allclose(matrix.mass_matrix(zero), known.mass_matrix(zero), atol=1e-12)
        eta = np.array([0.2, -0.1, 0.05, 0.02])
        apart.append(np.abs(matrix.mass_matrix(eta) - known.mass_matrix(eta)).max())
    assert apart[1] < 0.3 * apart[0] < 1e-2
    beam = dx.beam_elements(UNIT, 1.0, elements=5, lumped=True)
    modes = beam.modes(4, held=ROOT)
    known = beam.body(modes, level="full")
    lumps = dx.FiniteElements(beam.mass, beam.stiffness, beam.position, None, beam.node_names).body(modes)
    np.testing.assert_allclose(lumps.mass_matrix(eta), known.mass_matrix(eta), atol=1e-12)


def test_a_reduced_set_is_ruthless():
    """Craig and Bampton's matrices of a beam, over its end nodes and four amplitudes, are again a structure."""
    beam = dx.beam_elements(UNIT, 1.0, elements=10)
    inner = beam.modes(4, held=ROOT | {"tip": "123456"})
    ends = beam.select({"base": "123456", "tip": "123456"})
    rest = np.setdiff1d(np.arange(66), ends)
    static = np.zeros((66, 12))
    static[ends] = np.eye(12)
    static[rest] = -np.linalg.solve(beam.stiffness[np.ix_(rest, rest)], beam.stiffness[np.ix_(rest, ends)])
    basis = np.concatenate([static, inner.shapes], axis=1)
    node = np.repeat([0, 1, -1], [6, 6, 4])
    freedoms = np.stack([node, [*range(6), *range(6), *range(4)]], axis=1)
    reduced = dx.FiniteElements(
        basis.T @ beam.mass @ basis,
        basis.T @ beam.stiffness @ basis,
        beam.position[[0, -1]],
        freedoms,
        {"base": 0, "tip": 1},
    )
    body = reduced.body(reduced.modes(3, held=ROOT))
    whole = beam.body(beam.modes(3, held=ROOT))
    assert body.level == "ruthless"
    np.testing.assert_allclose(np.diag(body.stiffness), np.diag(whole.stiffness), rtol=3e-3)
    np.testing.assert_allclose(body.mass_matrix(np.zeros(3)), whole.mass_matrix(np.zeros(3)), atol=2e-3)
    np.testing.assert_allclose(body.inertia, whole.inertia, atol=1e-12)
    with pytest.raises(dx.ModelError, match="reduced set says nothing"):
        reduced.body(reduced.modes(3, held=ROOT), level="full")


def test_a_report_of_matrices():
    beam = dx.beam_elements(UNIT, 2.0, elements=6)
    report = dx.check_elements(replace(beam, shapes=beam.modes(3, held=ROOT).shapes))
    assert (report.rigid, report.rigid_by_position, report.massless) == (6, 6, 0)
    np.testing.assert_allclose(report.mass, 2.0)
    np.testing.assert_allclose(report.center, [1.0, 0.0, 0.0], atol=1e-12)
    assert report.orthogonality is not None
    assert report.orthogonality < 1e-9
    assert "7 nodes over [2, 0, 0] m" in str(report)
    assert "6 of the six" in str(report)
    beam = dx.beam_elements(UNIT, 2.0, elements=6, lumped=True)
    clamped = dx.FiniteElements(beam.mass[6:, 6:], beam.stiffness[6:, 6:], beam.position[1:])
    assert "it is held" in str(dx.check_elements(clamped))


def broken(**changes):
    beam = dx.beam_elements(UNIT, 1.0, elements=3)
    data = {"mass": beam.mass.copy(), "stiffness": beam.stiffness.copy(), "position": beam.position.copy()}
    data |= {"freedoms": beam.freedoms.astype(float), "shapes": np.eye(24, 2)}
    for name, (index, value) in changes.items():
        data[name][index] = value
    return data


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mass": ((0, 6), 5.0)}, "mass matrix: is not symmetric: 5 in row 1, column 7"),
        ({"stiffness": ((3, 4), np.nan)}, "stiffness matrix: is not finite in row 4, column 5"),
        ({"mass": ((7, 7), -1.0)}, "mass matrix: is negative on its diagonal, -1 in row 8"),
        ({"stiffness": ((7, 7), 1e-3)}, "stiffness matrix: is negative for some motion"),
        ({"mass": ((0, 0), 3.0)}, "mass matrix: is not the same in all directions"),
        ({"shapes": ((2, 1), np.inf)}, "mode shapes: are not finite in column 2"),
        ({"shapes": ((slice(None), 0), 0.0)}, "mode shapes: are zero in column 1"),
        ({"freedoms": ((2, 1), np.nan)}, r"freedoms: are \[0.0, nan\] in row 3"),
        ({"position": ((slice(None), 0), [0.0, 300.0, 600.0, 1000.0])}, "node positions: do not fit the stiffness"),
    ],
)
def test_matrices_of_no_structure_are_refused(changes, words):
    with pytest.raises(dx.ModelError, match=words):
        dx.check_elements(dx.FiniteElements(**broken(**changes)))


def test_freedoms_and_modes_that_are_not_there():
    beam = dx.beam_elements(UNIT, 1.0, elements=3)
    with pytest.raises(dx.ModelError, match=r"node 'end': there is none .*'base', 'tip'"):
        beam.modes(2, held={"end": "1"})
    with pytest.raises(dx.ModelError, match="node 'tip': has no freedom '7'"):
        beam.modes(2, held={"tip": "17"})
    with pytest.raises(dx.ModelError, match="18 modes that are neither rigid nor massless, and 30 are asked"):
        beam.modes(30, held=ROOT)
    with pytest.raises(dx.ModelError, match="moves freely by the static modes"):
        beam.modes(2, boundary=ROOT)
    with pytest.raises(dx.ModelError, match="have 24 rows, which is neither 3 nor 6 for each of 5 nodes"):
        dx.FiniteElements(beam.mass, beam.stiffness, np.zeros((5, 3)))
    with pytest.raises(dx.ModelError, match="linearly dependent"):
        dx.orthonormal_modes(beam.mass, beam.stiffness, np.ones((24, 2)))

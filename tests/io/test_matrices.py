"""Structures and flexible bodies in files: round trips, what engineers' files hold, and what is refused."""

from __future__ import annotations

import gc
import time

import jax
import numpy as np
import pytest

import dynax as dx
from dynax.cli import main
from dynax.io.matrix_market import parse_matrix_market

SECTION = dx.BeamSection(EA=1e4, EIy=2.0, EIz=1.0, GJ=1.0, mass_per_length=1.0, inertia_per_length=(1e-3, 0.0, 0.0))
HEAD = b"%%MatrixMarket matrix "


@pytest.fixture(scope="module")
def beam() -> dx.FiniteElements:
    return dx.beam_elements(SECTION, 1.0, elements=3)


@pytest.mark.parametrize(
    ("text", "matrix"),
    [
        (b"coordinate real general\n% a comment\n\n2 3 2\n1 1 1.5\n2 3 -2D+01\n", [[1.5, 0, 0], [0, 0, -20]]),
        (b"COORDINATE Integer symmetric\n2 2 2\n1 1 3\n2 1 4\n", [[3, 4], [4, 0]]),
        (b"coordinate real symmetric\r\n2 2 1\r\n1 2 4.\r\n", [[0, 4], [4, 0]]),
        (b"array real general\n2 2\n1\n2\n3\n4\n", [[1, 3], [2, 4]]),
        (b"array real symmetric\n3 3\n1 2 3\n4 5 6", [[1, 2, 3], [2, 4, 5], [3, 5, 6]]),
        (b"coordinate real general\n0 0 0\n", np.zeros((0, 0))),
    ],
)
def test_kinds_of_matrix_market(text, matrix):
    np.testing.assert_array_equal(parse_matrix_market(HEAD + text), matrix)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"%%Matrix\n", "m.mtx:1: is not a Matrix Market file"),
        (HEAD + b"coordinate complex general\n1 1 0\n", "is of the kind 'complex'"),
        (HEAD + b"coordinate real skew-symmetric\n1 1 0\n", "is of the kind 'skew-symmetric'"),
        (HEAD + b"coordinate real general\n% c\n2 x 3\n", "m.mtx:3: has '2 x 3' where 3 sizes must be"),
        (HEAD + b"coordinate real general\n2 2 2\n1 1 1\n", "has 3 numbers, and its head announces 2 entries"),
        (HEAD + b"coordinate real general\n2 2 1\n1 1 one\n", "m.mtx:3: 'one' is not a number"),
        (HEAD + b"coordinate real general\n2 2 1\n1 3 1\n", "has entry 1 in row 1, column 3 of 2 by 2"),
        (HEAD + b"coordinate real symmetric\n2 2 2\n1 2 1\n2 1 1\n", "has two entries for row 2, column 1"),
        (HEAD + b"coordinate real general\n99999 99999 1\n1 1 1\n", "too large to be made in full"),
    ],
)
def test_what_is_no_matrix_is_refused(text, words):
    with pytest.raises(dx.ModelError, match=words):
        parse_matrix_market(text, file="m.mtx")


def test_time_grows_with_the_size_of_the_file():
    def seconds(size):
        text = HEAD + b"coordinate real general\n9 %d %d\n" % (size, size)
        text += b"".join(b"1 %d 1.25e-3\n" % (k + 1) for k in range(size))
        start = time.process_time()
        parse_matrix_market(text)
        return time.process_time() - start

    gc.collect()
    short, long = (min(seconds(size) for _ in range(3)) for size in (10_000, 40_000))
    assert long < 9.0 * max(short, 5e-4)


@pytest.mark.parametrize("name", ["beam.npz", "beam"])
def test_a_structure_comes_back(beam, tmp_path, capsys, name):
    modes = beam.modes(3, held={"base": "123456"})
    whole = dx.FiniteElements(beam.mass, beam.stiffness, beam.position, None, beam.node_names, modes.shapes)
    dx.save_finite_elements(whole, tmp_path / name)
    back = dx.load_finite_elements(tmp_path / name)
    for field in ("mass", "stiffness", "position", "freedoms", "shapes"):
        np.testing.assert_array_equal(getattr(back, field), getattr(whole, field))
    assert back.node_names == {"base": 0, "tip": 3}
    known = whole.body(modes)
    for given in ({}, {"modes": 3, "held": {"base": "123456"}}):
        body = dx.load_flexible_body(tmp_path / name, **given)
        np.testing.assert_allclose(body.rotation_coupling, known.rotation_coupling, atol=1e-12)
        np.testing.assert_allclose(body.stiffness, known.stiffness, atol=1e-6)
    assert main(["check", str(tmp_path / name)]) == 0
    out = capsys.readouterr().out
    assert "4 nodes over [" in out
    assert "24 freedoms" in out
    assert "rigid motions: 6 found, 6 of the six" in out
    assert "mode shapes are orthogonal" in out


def test_a_body_comes_back_in_every_bit(beam, tmp_path, capsys):
    body = beam.body(beam.modes(3, held={"base": "123456"}), damping_ratio=0.01)
    dx.save_flexible_body(body, tmp_path / "body.npz")
    back = dx.load_flexible_body(tmp_path / "body.npz")
    assert jax.tree.structure(back) == jax.tree.structure(body)
    for one, other in zip(jax.tree.leaves(back), jax.tree.leaves(body), strict=True):
        np.testing.assert_array_equal(one, other)
    assert dx.load_flexible_body(tmp_path / "body.npz", level="ruthless").level == "ruthless"
    with pytest.raises(dx.ModelError, match="holds a body with its modes"):
        dx.load_flexible_body(tmp_path / "body.npz", modes=2)
    assert main(["check", str(tmp_path / "body.npz")]) == 0
    assert "3 modes, nodes 'base', 'tip', consistent" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mass": None}, "x.npz: `mass`: is missing"),
        ({"weight": np.eye(2)}, "x.npz: array 'weight': is not known"),
        ({"mass": "unsymmetric"}, "x.npz: mass matrix: is not symmetric"),
        ({"position": np.zeros((4, 2))}, r"x.npz: node positions: have shape \(4, 2\)"),
        ({"mass": np.array([1j])}, "x.npz: `mass`: is of type complex128"),
        ({"node_names": np.array(["a", "b"])}, "must be as many"),
        ({"node_names": np.array(["a"]), "node_rows": np.array([9])}, "node 'a': is row 9"),
        ({"mass": np.array([{}])}, "is not a .npz file of arrays: Object arrays cannot be loaded"),
    ],
)
def test_files_of_no_structure_are_refused(beam, tmp_path, capsys, change, words):
    arrays = {"mass": beam.mass, "stiffness": beam.stiffness, "position": beam.position} | change
    if isinstance(arrays["mass"], str):
        arrays["mass"] = beam.mass + np.triu(np.ones((24, 24)), 1)
    file = tmp_path / "x.npz"
    np.savez(file, **{name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(dx.ModelError, match=words):
        dx.load_finite_elements(file)
    assert main(["check", str(file)]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_files_that_are_none(tmp_path):
    with pytest.raises(dx.ModelError, match=r"no\.npz: cannot be read"):
        dx.load_finite_elements(tmp_path / "no.npz")
    (tmp_path / "text.npz").write_text("nothing")
    with pytest.raises(dx.ModelError, match=r"is not a \.npz file of arrays"):
        dx.load_finite_elements(tmp_path / "text.npz")
    with pytest.raises(dx.ModelError, match="is one matrix of several"):
        dx.load_finite_elements(tmp_path / "mass.mtx")
    with pytest.raises(dx.ModelError, match="`mass`: is missing"):
        dx.load_finite_elements(tmp_path)
    np.savez(tmp_path / "later.npz", format="dynax flexible body 9")
    with pytest.raises(dx.ModelError, match="format 'dynax flexible body 9'"):
        dx.load_flexible_body(tmp_path / "later.npz")


def test_integrals_of_no_body_are_refused():
    integrals = {"mass": 1.0, "first_moment": np.zeros(3), "inertia": np.eye(3), "rotation_coupling": np.zeros((3, 1))}
    with pytest.raises(dx.ModelError, match="negative kinetic energy for some motion"):
        dx.FlexibleBody.from_integrals(
            **integrals, translation_coupling=2 * np.ones((3, 1)), modal_mass=np.eye(1), stiffness=np.eye(1)
        )
    with pytest.raises(dx.ModelError, match="`stiffness` is not finite"):
        dx.FlexibleBody.from_integrals(
            **integrals, translation_coupling=np.zeros((3, 1)), modal_mass=np.eye(1), stiffness=[[np.nan]]
        )

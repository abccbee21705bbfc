"""Screw decomposition of motions and forces (section 2.5)."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dynax.spatial import Force, Motion, Rotation, Transform, screw_decomposition

KINDS = pytest.mark.parametrize("kind", [Motion, Force])


def halves(x):
    """Direction and moment: a force keeps its direction below."""
    return (x.angular, x.linear) if isinstance(x, Motion) else (x.linear, x.angular)


@KINDS
@pytest.mark.spec("RBDA-2.5-SCREW")
def test_line_plus_parallel_free_vector(rng, kind):
    x = kind.from_array(rng.normal(size=(20, 6)))
    s = screw_decomposition(x)
    np.testing.assert_allclose((s.line + s.free).array, x.array, atol=1e-14)
    direction, moment = (part.array for part in halves(s.line))
    np.testing.assert_allclose(np.sum(direction * moment, axis=1), 0.0, atol=1e-13)  # a line: its pitch is zero
    np.testing.assert_allclose(np.cross(s.point.array, direction), moment, atol=1e-13)  # through the point
    none, slide = (part.array for part in halves(s.free))
    np.testing.assert_allclose(none, 0.0)
    np.testing.assert_allclose(slide, s.pitch[:, None] * direction, atol=1e-13)
    np.testing.assert_allclose(s.direction.array * s.magnitude[:, None], direction, atol=1e-13)


@KINDS
@pytest.mark.spec("RBDA-2.5-SCREW")
def test_pitch_and_axis_do_not_depend_on_the_frame(rng, kind):
    x = kind.from_array(rng.normal(size=(20, 6)))
    pose = Transform(Rotation.exp(rng.normal(size=3)), rng.normal(size=3))
    here, there = screw_decomposition(x), screw_decomposition(pose @ x)
    np.testing.assert_allclose(there.pitch, here.pitch, rtol=1e-10)
    np.testing.assert_allclose(there.magnitude, here.magnitude, rtol=1e-12)
    np.testing.assert_allclose(there.direction.array, Rotation(pose.rotation) @ here.direction.array, atol=1e-12)
    offset = (pose @ here.point.array) - there.point.array  # along the axis
    np.testing.assert_allclose(np.cross(offset, there.direction.array), 0.0, atol=1e-11)


@KINDS
@pytest.mark.spec("RBDA-2.5-SCREW")
def test_free_vectors_have_no_axis_and_no_nan(kind):
    free = np.array([0, 0, 0, 3.0, 0, 4.0]) if kind is Motion else np.array([3.0, 0, 4.0, 0, 0, 0])
    for value, magnitude in ((free, 5.0), (np.zeros(6), 0.0)):
        s = screw_decomposition(kind.from_array(value))
        np.testing.assert_allclose(s.line.array, 0.0)
        np.testing.assert_allclose(s.free.array, value)
        np.testing.assert_allclose(s.point.array, 0.0)
        assert np.isinf(s.pitch)
        assert s.magnitude == magnitude
        for derivative in (jax.jacfwd, jax.jacrev):
            slopes = jax.tree.leaves(derivative(lambda x: screw_decomposition(kind.from_array(x)))(value))
            assert all(np.all(np.isfinite(slope)) for slope in slopes)


def test_a_known_screw():
    """A turn of 2 rad/s about the line x = 3 along z, climbing 0.5 m/rad."""
    s = screw_decomposition(Motion.from_array([0, 0, 2.0, 0, -6.0, 1.0]))
    np.testing.assert_allclose(s.point.array, [3, 0, 0])
    assert (s.pitch, s.magnitude) == (0.5, 2.0)

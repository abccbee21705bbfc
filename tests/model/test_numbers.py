"""Numbers that a floating type cannot hold: an error or an entry of the report that names them, never a silent NaN."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx


@pytest.fixture
def single_precision() -> Iterator[None]:
    """JAX as it is when nobody asks for 64 bits."""
    jax.config.update("jax_enable_x64", False)
    yield
    jax.config.update("jax_enable_x64", True)


def urdf(mass="1", inertia="1", com="0", more="") -> str:
    tensor = f'<inertia ixx="{inertia}" iyy="{inertia}" izz="{inertia}" ixy="0" ixz="0" iyz="0"/>'
    return f"""<robot name="r"><link name="base"/>
<link name="a"><inertial><origin xyz="{com} 0 0"/><mass value="{mass}"/>{tensor}</inertial></link>
<joint name="j" type="continuous"><parent link="base"/><child link="a"/><axis xyz="1 0 0"/>{more}</joint></robot>"""


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"mass": "1e39"}, r"body 'a': `mass` is 1e\+39, more than float32 holds"),
        ({"inertia": "1e39"}, r"body 'a': `inertia` is 1e\+39"),
        ({"com": "1e200"}, r"body 'a': `com` is 1e\+200"),
        ({"com": "1e20"}, r"body 'a': its mass is 1e\+20 m from the joints"),
        ({"more": '<origin xyz="0 0 1e39"/>'}, r"body 'a': `placements.translation` is 1e\+39"),
        ({"more": '<dynamics damping="1e39"/>'}, r"joint 'j': `damping` is 1e\+39"),
    ],
)
def test_numbers_too_large_for_float32_are_refused(numbers, words, single_precision, tmp_path):
    path = tmp_path / "robot.urdf"
    path.write_text(urdf(**numbers))
    with pytest.raises(dx.ModelError, match=words) as caught:
        dx.load(path)
    assert caught.value.file == str(path)
    assert "jax_enable_x64" in str(caught.value)


def test_float64_holds_more_and_has_an_end_too():
    assert dx.load(urdf(mass="1e39", com="0")).report == ()
    with pytest.raises(dx.ModelError, match=r"body 'a': its mass is 1e\+200 m .* more than float64 holds"):
        dx.load(urdf(com="1e200"))
    far = dx.Transform.from_translation((1e308, 0.0, 0.0))
    builder = dx.ModelBuilder().body("a", joint=dx.Revolute(), placement=far).frame("b", body="a", placement=far)
    with pytest.raises(dx.ModelError, match=r"frame 'c': `frames.translation` is not finite"):
        builder.body("b2", parent="a", placement=far).frame("c", body="b2", placement=far).build()


@pytest.mark.parametrize("mass", ["1e-46", "1e-39"])  # zero in float32, and what compiled programs take for zero
def test_numbers_too_small_for_float32_are_reported(mass, single_precision):
    model = dx.load(urdf(mass=mass, inertia=mass, more='<dynamics friction="1e-50"/>'))
    found = [str(finding) for finding in model.report]
    for start in ("body 'a': `mass` is less", "body 'a': `inertia` is less", "joint 'j': `friction_loss` is less"):
        assert any(text.startswith(start) for text in found), found


def test_what_is_small_beside_something_else_is_not_reported(single_precision):
    inertia = dx.SpatialInertia(1.0, (0, 0, 0), ((1.0, 1e-60, 0.0), (1e-60, 1.0, 0.0), (0.0, 0.0, 1.0)))
    place = dx.Transform.from_translation((1e-300, 0.0, 1.0))
    assert dx.ModelBuilder().body("a", joint=dx.Revolute(), inertia=inertia, placement=place).build().report == ()


def test_a_limit_beyond_float32_is_none(single_precision):
    limits = '<limit lower="-1e300" upper="1" velocity="1e308" effort="2"/>'
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = dx.load(urdf(more=limits).replace("continuous", "revolute"))
    np.testing.assert_array_equal(model.position_limits, [[-jnp.inf, 1.0]])
    np.testing.assert_array_equal(model.velocity_limits, [jnp.inf])
    assert sum("taken as no limit" in str(finding) and "joint 'j'" in str(finding) for finding in model.report) == 2

"""Pictures without a screen, against what a pinhole must see."""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

import dynax as dx
from dynax.contact import Sphere
from dynax.errors import ModelError
from dynax.viz.meshes import mesh
from dynax.viz.raster import Camera, Soup, draw

pytest.importorskip("PIL")
FIELD = np.deg2rad(40.0)


def soup(*triangles: tuple[np.ndarray, tuple[float, ...]]) -> Soup:
    corners = np.concatenate([corners for corners, _ in triangles])
    colors = np.concatenate([np.tile(color, (len(corners), 1)) for corners, color in triangles])
    return Soup(corners, colors, np.zeros(len(corners), bool))


def test_a_ball_is_as_large_as_its_cone_and_stands_where_it_is():
    """On the axis its outline is a circle of `f tan(asin(r / d))` pixels."""
    ball, d = mesh(Sphere(0.5)), 4.0
    eye = Camera(np.array([d, 0, 0]), np.zeros(3))
    picture = draw(soup((ball.vertices[ball.faces], (1, 0, 0, 1))), eye, 200, 160, None, 1)
    seen = (picture[..., 0].astype(int) - picture[..., 2]) > 10
    focal = 80 / np.tan(0.5 * FIELD)
    assert seen.sum() == pytest.approx(np.pi * (focal * np.tan(np.arcsin(0.5 / d))) ** 2, rel=0.03)
    y, x = np.nonzero(seen)
    assert (x.mean(), y.mean()) == pytest.approx((99.5, 79.5), abs=0.3)
    # A ball to the left of where the camera looks, and above it: x forward, so left is y.
    moved = ball.vertices[ball.faces] + [0.0, 0.4, 0.2]
    picture = draw(soup((moved, (1, 0, 0, 1))), Camera(np.array([-d, 0, 0]), np.zeros(3)), 200, 160, None, 1)
    y, x = np.nonzero((picture[..., 0].astype(int) - picture[..., 2]) > 10)
    assert (x.mean(), y.mean()) == pytest.approx((99.5 - focal * 0.1, 79.5 - focal * 0.05), abs=1.0)


def test_the_nearest_hides_the_others_in_any_order(rng):
    def square(x):
        a = np.array([[x, -1, -1], [x, 1, -1], [x, 1, 1], [x, -1, 1]], float)
        return a[[[0, 1, 2], [0, 2, 3]]]

    eye = Camera(np.array([5.0, 0, 0]), np.zeros(3))
    behind = square(6.0), (0, 0, 1, 1)
    layers = [(square(2.0), (0, 1, 0, 1)), (square(1.0), (1, 0, 0, 1)), behind]
    for order in ([0, 1, 2], [2, 1, 0], rng.permutation(3)):
        middle = draw(soup(*(layers[k] for k in order)), eye, 40, 40, None, 1)[20, 20]
        assert middle[1] > 100
        assert middle[0] == middle[2] == 0
    glass = draw(soup((square(2.0), (0, 1, 0, 0.25)), (square(1.0), (1, 0, 0, 1))), eye, 40, 40, None, 1)[20, 20]
    assert glass[0] == pytest.approx(3 * glass[1], abs=3)  # a quarter of the one, three quarters of the other


def pendulum() -> dx.Model:
    builder = dx.ModelBuilder()
    builder.body("rod", joint=dx.Revolute((0, 1, 0)), inertia=dx.SpatialInertia(1.0, (0, 0, -0.5), (1 / 12, 1 / 12, 0)))
    return builder.build()


def test_films_and_pictures(tmp_path):
    """As many frames as the motion lasts; the film is what was returned; the pendulum is on the side it swings to."""
    from PIL import Image

    model = pendulum()
    time = np.linspace(0.0, 1.0, 101)
    motion = dx.Trajectory(time, 0.8 * np.sin(np.pi * (time - 0.5))[:, None], np.zeros((101, 1)))
    camera = Camera(np.array([0.0, -4.0, 0.0]), np.array([0.0, 0.0, -0.5]))
    frames = dx.render(model, motion, tmp_path / "m.gif", size=(96, 72), fps=10, camera=camera, ground=None)
    assert frames.shape == (11, 72, 96, 3)

    def side(frame):
        x = np.nonzero(np.abs(frame.astype(int) - frame[0, 0]).sum(-1) > 60)[1]
        return x.mean() - 47.5

    assert side(frames[0]) > 4
    assert abs(side(frames[5])) < 1
    assert side(frames[10]) < -4
    with Image.open(tmp_path / "m.gif") as film:
        assert film.n_frames == 11
        assert film.info["duration"] == 100
        film.seek(10)
        np.testing.assert_allclose(np.asarray(film.convert("RGB"), int), frames[10], atol=24)  # of 128 colours
    dx.render(model, motion, tmp_path / "m.png", size=(96, 72), camera=camera, ground=None)
    with Image.open(tmp_path / "m.png") as picture:
        np.testing.assert_array_equal(np.asarray(picture), frames[10])


def test_a_film_for_a_player(tmp_path):
    reader = pytest.importorskip("imageio_ffmpeg")
    frames = dx.render(pendulum(), np.array([0.3]), tmp_path / "m.mp4", size=(96, 72))
    read = [reader.get_ffmpeg_exe(), "-i", tmp_path / "m.mp4", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    shown = np.frombuffer(subprocess.run(read, capture_output=True, check=True).stdout, np.uint8).reshape(72, 96, 3)
    assert np.abs(shown.astype(int) - frames[0]).mean() < 4


def test_batches_stand_apart_ghosts_are_faint_and_errors_have_names(tmp_path):
    model = pendulum()
    alone = dx.render(model, np.array([0.0]), size=(96, 72), ground=None)
    many = dx.render(model, np.zeros((40, 1)), size=(96, 72), ground=None, most=4, spacing=1.0)
    assert many.shape == alone.shape
    assert np.any(many != alone)
    ghost = dx.render(model, np.array([0.0]), size=(96, 72), ground=None, ghost=np.array([1.5]))
    assert np.any(ghost != alone)
    shown = dx.render(model, np.array([0.0]), size=(96, 72), ground=None, show=("com", "frames"))
    assert np.any(shown != alone)
    with pytest.raises(ModelError, match="no such kind"):
        dx.render(model, file=tmp_path / "m.xyz")
    with pytest.raises(ModelError, match="folder"):
        dx.render(model, file=tmp_path / "none" / "m.gif")
    with pytest.raises(ValueError, match="1 numbers"):
        dx.render(model, np.zeros(3))
    with pytest.raises(ValueError, match="not finite"):
        dx.render(model, np.array([np.nan]))
    with pytest.raises(TypeError, match="a file, a model or a scene"):
        dx.render(3.0)


@pytest.mark.slow
def test_forces_of_contacts_carry_the_weight():
    """A ball at rest: what presses is its weight, below it; and it is drawn."""
    builder = dx.ModelBuilder()
    builder.body("ball", joint=dx.Free(), inertia=dx.SpatialInertia(2.0, (0, 0, 0), (0.1, 0.1, 0.1)))
    collider = dx.contact.Collider("ball", Sphere(0.5))
    scene = dx.contact.scene(builder.build(), [collider, dx.contact.Collider("world", dx.contact.Plane())])
    q = np.array([0.0, 0, 0.5, 1, 0, 0, 0])
    controls = np.zeros((3, 6))
    motion = dx.rollout(scene, q, np.zeros(6), controls, 0.01)
    points, forces = dx.viz.contact_forces(scene, motion, controls)
    np.testing.assert_allclose(np.abs(forces[:, 0]), np.tile([0, 0, 2 * 9.81], (4, 1)), atol=1e-3)
    np.testing.assert_allclose(points[:, 0, 2], 0.0, atol=1e-4)
    plain = dx.render(scene, motion, size=(96, 72))
    drawn = dx.render(scene, motion, size=(96, 72), forces=(points, forces))
    assert np.any(plain != drawn)
    with pytest.raises(ValueError, match="forces"):
        dx.render(scene, motion, forces=np.zeros((2, 3, 1, 3)))

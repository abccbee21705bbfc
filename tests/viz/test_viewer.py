"""The viewer in a browser: what it hands to viser, and what a real browser shows of it."""

from __future__ import annotations

import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx
from dynax.viz.sliders import configuration, sliders

pytest.importorskip("viser")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def arm() -> dx.Model:
    builder = dx.ModelBuilder(name="arm")
    rod = dx.SpatialInertia(1.0, (0, 0, 0.25), (0.021, 0.021, 0.001))
    at = dx.Transform.from_translation((0.0, 0.0, 0.5))
    builder.body("upper", joint=dx.Revolute((0, 1, 0)), inertia=rod, position_limits=(0.2, 1.5))
    builder.body("lower", parent="upper", joint=dx.Spherical(), placement=at, inertia=rod)
    return builder.build()


BODIES = ("upper", "lower", "world")


def nodes(viewer: dx.viz.Viewer) -> set[str]:
    return {body.name for handles in viewer._handles for body in handles["bodies"]}


def matrices(nodes) -> np.ndarray:
    return np.stack([dx.Rotation.from_quaternion(node.wxyz).matrix for node in nodes])


def test_the_page_holds_what_kinematics_says(key):
    model = arm()
    qs = jnp.stack([dx.random_configuration(model, k) for k in jax.random.split(key, 5)])
    motion = dx.Trajectory(jnp.linspace(0.0, 0.4, 5), qs, jnp.zeros((5, model.nv)))
    truth = jax.jit(lambda q: (dx.forward_kinematics(model, q), dx.center_of_mass(model, q)))
    with dx.view(model, motion, port=0, ghost=motion) as viewer:
        assert nodes(viewer) == {f"/{name}/{body}" for name in ("arm", "arm ghost") for body in BODIES}
        assert [node.name for node, _ in viewer._handles[0]["meshes"]] == ["/arm/upper/0", "/arm/lower/1"]
        for row, time in ((3, 0.31), (4, 9.0), (0, 0.0)):
            with viewer._stopped():
                viewer.show(time)
                pose, center = truth(qs[row])
                bodies = viewer._handles[0]["bodies"]
                np.testing.assert_allclose(matrices(bodies)[:2], pose.rotation, atol=1e-9)
                np.testing.assert_allclose([b.position for b in bodies[:2]], pose.translation, atol=1e-9)
                np.testing.assert_allclose(viewer._handles[0]["com"].position, center, atol=1e-9)
        viewer.add(model, qs[0], name="other")
        assert "/other/lower" in nodes(viewer)
        assert "localhost" in repr(viewer)
    assert "closed" in repr(viewer)


def test_sliders_reach_every_freedom_within_its_limits():
    model = arm()
    q = np.asarray(dx.neutral(model)).copy()
    q[0] = 0.2  # its lower limit
    found = sliders(model, q)
    assert [slider.name for slider in found] == ["upper_joint", "lower_joint 1", "lower_joint 2", "lower_joint 3"]
    assert found[0].limits == (0.2, 1.5)
    assert found[0].value == 0.2
    values = np.array([1.5, 0.0, np.pi / 2, 0.0])
    moved = configuration(model, q, found, values, 0, jnp.asarray(q))
    np.testing.assert_allclose(moved, [1.5, np.sqrt(0.5), 0, np.sqrt(0.5), 0], atol=1e-12)


def test_loops_stay_closed_by_hand():
    rod, pin = dx.SpatialInertia(1.0, (0.5, 0, 0), (0.01, 0.1, 0.1)), dx.Revolute((0, 0, 1))
    at = [dx.Transform.from_translation((x, 0.0, 0.0)) for x in (0.5, 1.2, 1.0, 1.1)]
    builder = dx.ModelBuilder()
    builder.body("crank", joint=pin, inertia=rod)
    builder.body("coupler", parent="crank", joint=pin, placement=at[0], inertia=rod)
    builder.body("rocker", joint=pin, placement=at[2], inertia=rod)
    ends = {"predecessor_placement": at[1], "successor_placement": at[3]}
    builder.loop("elbow", predecessor="coupler", successor="rocker", joint=pin, **ends)
    model = builder.build()
    # Closed by hand: the elbow is 1.2 m from the crank's end and 1.1 m from the rocker's foot.
    end, foot = 0.5 * np.exp(1j), 1.0
    way = foot - end
    along = (1.2**2 - 1.1**2 + abs(way) ** 2) / (2.0 * abs(way))
    elbow = end + (along + 1j * np.sqrt(1.2**2 - along**2)) * way / abs(way)
    q = jnp.array([1.0, np.angle(elbow - end) - 1.0, np.angle(elbow - foot)])
    found = sliders(model, np.asarray(q))
    values = np.array([slider.value for slider in found])
    values[0] += 0.2
    moved = configuration(model, np.asarray(q), found, values, 0, q)
    crank, coupler, rocker = map(float, moved)
    assert crank == pytest.approx(float(q[0]) + 0.2)
    elbow = 0.5 * np.exp(1j * crank) + 1.2 * np.exp(1j * (crank + coupler))
    assert elbow == pytest.approx(foot + 1.1 * np.exp(1j * rocker), abs=1e-9)


def test_a_notebook_shows_the_page_and_nothing_else():
    """In a kernel, where viser's greetings would be outputs of a cell."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    source = "import dynax as dx; dx.view(dx.load('<mujoco><worldbody><body/></worldbody></mujoco>'), port=0)"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    nbclient.NotebookClient(notebook, kernel_name="python3", timeout=120).execute()
    (output,) = notebook.cells[0].outputs
    assert output.data["text/html"].startswith("<iframe srcdoc=")
    assert "localhost" in output.data["text/html"][-200:]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="NO CHROMIUM: NO BROWSER LOOKED AT THE PAGE (apt-get install chromium)")
def test_a_browser_shows_the_saved_page_as_the_renderer_draws_it(tmp_path):
    """Two renderers that share nothing but the triangles: the same camera must give the same outline."""
    from PIL import Image

    model, q = arm(), jnp.array([0.9, np.cos(0.3), np.sin(0.3), 0, 0])
    with dx.view(model, q, port=0) as viewer:
        page = viewer.save_html(tmp_path / "arm.html")
        eye = viewer._server.initial_camera
        camera = dx.viz.Camera(np.asarray(eye.position), np.asarray(eye.look_at), float(eye.fov))
    shot, size = tmp_path / "shot.png", (960, 720)
    options = "--headless=new --no-sandbox --use-angle=swiftshader --enable-unsafe-swiftshader --hide-scrollbars"
    wait = ["--timeout=20000", "--virtual-time-budget=8000", "--window-size=960,720"]
    command = [
        CHROMIUM,
        *options.split(),
        *wait,
        f"--user-data-dir={tmp_path}/home",
        f"--screenshot={shot}",
        page.as_uri(),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=240)
    drawn = dx.render(model, q, size=size, camera=camera, ground=None)[0].astype(int)
    with Image.open(shot) as picture:
        assert picture.size == size
        seen = np.asarray(picture.convert("RGB"), int)

    def coloured(frame):  # the bodies are the only thing with a colour
        return ((np.max(frame, axis=-1) - np.min(frame, axis=-1)) > 25)[180:]  # above there are viser's messages

    one, two = coloured(drawn), coloured(seen)
    assert one.sum() > 10_000
    assert (one & two).sum() / (one | two).sum() > 0.9

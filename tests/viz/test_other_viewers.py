"""Rerun and MeshCat: what a recording and a page hold is what kinematics says."""

from __future__ import annotations

import contextlib
import importlib.util
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dynax as dx


def needs(package: str) -> pytest.MarkDecorator:
    absent = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(
        absent, reason=f"NO {package.upper()}: NO ROBOT WAS SHOWN THERE (pip install dynax[{package}])"
    )


def arm() -> dx.Model:
    builder = dx.ModelBuilder(name="a/m")
    rod = dx.SpatialInertia(1.0, (0, 0, 0.25), (0.021, 0.021, 0.001))
    at = dx.Transform.from_translation((0.0, 0.0, 0.5))
    builder.body("upper", joint=dx.Revolute((0, 1, 0)), inertia=rod)
    return builder.body("lower", parent="upper", joint=dx.Spherical(), placement=at, inertia=rod).build()


def moving(model: dx.Model, key: jax.Array, rows: int) -> tuple[dx.Trajectory, dx.Transform]:
    qs = jax.vmap(lambda k: dx.random_configuration(model, k))(jax.random.split(key, rows))
    motion = dx.Trajectory(jnp.arange(rows) / 30.0, qs, jnp.zeros((rows, model.nv)))
    return motion, jax.vmap(lambda q: dx.forward_kinematics(model, q))(qs)


def matrices(quaternions: np.ndarray) -> np.ndarray:
    """Of quaternions with the scalar last."""
    return np.stack([dx.Rotation.from_quaternion(np.roll(q, 1)).matrix for q in quaternions])


@needs("rerun")
def test_a_recording_of_rerun_holds_poses_shapes_and_forces(key, tmp_path):
    import rerun as rr
    from rerun.chunk import RrdReader

    model, file = arm(), tmp_path / "motion.rrd"
    motion, pose = moving(model, key, 5)
    forces = np.arange(2 * 5 * 2 * 3, dtype=float).reshape(2, 5, 2, 3)
    recording = rr.RecordingStream("test")
    recording.save(str(file))
    dx.viz.log_to_rerun(recording, model, motion, forces=forces)
    recording.flush()
    recording.disconnect()

    found: dict[str, dict[str, list]] = {}
    for chunk in RrdReader(file).stream().to_chunks():
        batch = chunk.to_record_batch()
        columns = {name: batch.column(name) for name in batch.schema.names}
        columns = {name: x.cast("int64") if name == "time" else x for name, x in columns.items()}
        columns = {name: x.to_pylist() for name, x in columns.items()}
        found.setdefault(str(chunk.entity_path), {}).update(columns)
    for k, body in enumerate(("upper", "lower")):
        node = found[f"/a_m/{body}"]
        np.testing.assert_allclose([x[0] for x in node["Transform3D:translation"]], pose.translation[:, k], atol=1e-6)
        turned = matrices(np.array([x[0] for x in node["Transform3D:quaternion"]]))
        np.testing.assert_allclose(turned, pose.rotation[:, k], atol=1e-6)
        np.testing.assert_allclose(np.array(node["time"]) * 1e-9, motion.time, atol=1e-6)
        (vertices,) = found[f"/a_m/{body}/0"]["Mesh3D:vertex_positions"]
        assert len(vertices) == len(dx.viz.actors.actors(model)[0].parts[k].surface.vertices)
    np.testing.assert_allclose(found["/a_m/forces"]["Arrows3D:origins"], forces[0])
    np.testing.assert_allclose(found["/a_m/forces"]["Arrows3D:vectors"], forces[1])
    center = jax.vmap(lambda q: dx.center_of_mass(model, q))(motion.q)
    np.testing.assert_allclose([x[0] for x in found["/a_m/center_of_mass"]["Points3D:positions"]], center, atol=1e-6)


@needs("meshcat")
def test_a_page_of_meshcat_holds_poses_and_shapes(key):
    """What is sent to its server, command by command, and the page that it makes of it."""
    with warnings.catch_warnings():  # of the packages it uses
        warnings.simplefilter("ignore")
        import meshcat

        with contextlib.redirect_stdout(None):
            page = meshcat.Visualizer()
        sent = []
        send = page.window.send
        page.window.send = lambda command: (sent.append(command.lower()), send(command))
        try:
            model = arm()
            motion, pose = moving(model, key, 4)
            dx.viz.show_in_meshcat(page["robots"], model, motion)
            html = page.static_html()
        finally:
            page.window.server_proc.terminate()
            page.window.server_proc.wait()
            page.window.zmq_socket.close()
    assert len(html) > 100_000
    by = {kind: [each for each in sent if each["type"] == kind] for kind in ("set_object", "set_transform")}
    (film,) = [each for each in sent if each["type"] == "set_animation"]
    roots = [f"/meshcat/robots/a_m/{body}" for body in ("upper", "lower")]
    assert [each["path"] for each in by["set_object"]] == [f"{roots[0]}/0", f"{roots[1]}/1"]
    clips = {clip["path"]: {t["name"]: t["keys"] for t in clip["clip"]["tracks"]} for clip in film["animations"]}
    for k, root in enumerate(roots):
        begins = next(each for each in by["set_transform"] if each["path"] == root)
        matrix = np.reshape(begins["matrix"], (4, 4)).T
        np.testing.assert_allclose(matrix[:3, 3], pose.translation[0, k], atol=1e-6)
        np.testing.assert_allclose(matrix[:3, :3], pose.rotation[0, k], atol=1e-6)
        positions, turns = clips[root][".position"], clips[root][".quaternion"]
        assert [each["time"] for each in positions] == [0, 1, 2, 3]
        np.testing.assert_allclose([each["value"] for each in positions], pose.translation[:, k], atol=1e-6)
        np.testing.assert_allclose(matrices([each["value"] for each in turns]), pose.rotation[:, k], atol=1e-6)


def test_what_is_missing_is_named(monkeypatch):
    import sys

    model = arm()
    for package, show in (("rerun", dx.viz.log_to_rerun), ("meshcat", dx.viz.show_in_meshcat)):
        for module in (package, f"{package}.animation"):
            monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ModuleNotFoundError, match=rf"dynax\[{package}\]"):
            show(None, model)

"""Robots in a browser, by viser."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dynax.algorithms.center_of_mass import center_of_mass
from dynax.algorithms.frames import forward_kinematics
from dynax.errors import ModelError
from dynax.viz.actors import Actor, actors, node_names, quaternions, reach
from dynax.viz.render import arrows
from dynax.viz.sliders import configuration, sliders

RATE = 30.0
"""Pictures a second, in a browser and in a saved page."""


def import_viser() -> Any:
    try:
        import viser
    except ImportError:
        raise ModuleNotFoundError('the viewer needs the viser package: pip install "dynax[view]"') from None
    return viser


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """No greetings of viser's, which speaks through rich: to the terminal, or as outputs of a notebook."""
    import rich

    console = rich.get_console()
    before, console.quiet = console.quiet, True
    try:
        yield
    finally:
        console.quiet = before


class Viewer:
    """Robots on a page at `url`; made by `dx.view`. It is closed by `close()`, at the end of a `with`, or with Python.

    `add` puts further robots on the page, `show` moves all of them to a time, `save_html` writes the page to a file
    that opens without Python.
    """

    def __init__(self, *, host: str = "127.0.0.1", port: int = 0):
        viser = import_viser()
        with _silence():
            self._server = viser.ViserServer(host=host, port=port, verbose=False)
        self._scene, self._gui = self._server.scene, self._server.gui
        self._stage: list[Actor] = []
        self._handles: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._clock: dict[str, Any] = {}
        self._player: threading.Thread | None = None
        self._scene.set_up_direction("+z")
        with self._gui.add_folder("Show"):
            self._shown = {
                "frames": self._gui.add_checkbox("frames", False),
                "com": self._gui.add_checkbox("centre of mass", False),
                "forces": self._gui.add_checkbox("forces", True),
                "inside": self._gui.add_checkbox("see through", False),
            }
        for box in self._shown.values():
            box.on_update(lambda _: self._show_chosen())

    # On the page -------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        host = self._server.get_host()
        return f"http://{'localhost' if host in ('127.0.0.1', '0.0.0.0') else host}:{self._server.get_port()}"

    def add(self, robot: Any, motion: Any = None, **options: Any) -> Viewer:
        """Put a robot on the page; arguments as those of `dx.view`."""
        new = actors(robot, motion, **options)
        with self._lock:
            taken = {actor.name for actor in self._stage}
            for actor in new:
                own, k = actor.name, 2
                while own in taken:
                    own, k = f"{actor.name} ({k})", k + 1
                taken.add(own)
                self._handles.append(self._drawn(own, actor))
                self._stage.append(actor)
            self._look()
        if all(len(actor.time) == 1 for actor in new) and len(new) == 1:
            self._add_sliders(len(self._stage) - 1)
        if any(len(actor.time) > 1 for actor in new) and not self._clock:
            self._add_clock()
        elif self._clock:
            self._clock["time"].max = self._end
        self.show(0.0)
        return self

    def _drawn(self, name: str, actor: Actor) -> dict[str, Any]:
        """The nodes of a robot: one for each body, what is fixed to it below."""
        radius = reach([actor])[1]
        root, names = node_names(name, actor.model)
        size = {"axes_length": 0.15 * radius, "axes_radius": 0.006 * radius}
        bodies = [self._scene.add_frame(f"{root}/{body}", show_axes=False, **size) for body in names]
        meshes = []
        for k, part in enumerate(actor.parts):
            red, green, blue, opacity = part.color
            node = self._scene.add_mesh_simple(
                f"{bodies[part.body].name}/{k}",
                part.surface.vertices.astype(np.float32),
                part.surface.faces.astype(np.uint32),
                color=tuple(round(255 * x) for x in (red, green, blue)),
                opacity=opacity if opacity < 0.99 else None,
                flat_shading=True,
                side="double",
            )
            meshes.append((node, opacity))
        com = self._scene.add_icosphere(f"{root}/com", radius=0.04 * radius, color=(240, 190, 25), visible=False)
        return {"bodies": bodies, "com": com, "meshes": meshes, "forces": None, "root": root, "radius": radius}

    def _look(self) -> None:
        """The camera where it sees all, and the ground below."""
        middle, radius = reach(self._stage)
        self._server.initial_camera.position = tuple(middle + 2.6 * radius * np.array([0.72, -0.58, 0.36]))
        self._server.initial_camera.look_at = tuple(middle)
        self._server.initial_camera.fov = np.deg2rad(50.0)
        cell = 10.0 ** np.floor(np.log10(radius)) * 0.5
        lowest = min(0.0, float(middle[2] - radius)) if middle[2] + radius < 0 or middle[2] - radius > 0 else 0.0
        self._scene.add_grid(
            "/ground", 40 * cell, 40 * cell, cell_size=cell, section_size=4 * cell, position=(0.0, 0.0, lowest),
            cell_color=(220, 222, 226), section_color=(190, 193, 200), shadow_opacity=0.25,
        )  # fmt: skip

    # In time -----------------------------------------------------------------------------------------------------

    @property
    def _end(self) -> float:
        return max(float(actor.time[-1]) for actor in self._stage)

    def show(self, moment: float) -> None:
        """All robots as they are at a time of their motions [s]."""
        with self._lock, self._server.atomic():
            for actor, handles in zip(self._stage, self._handles, strict=True):
                row = actor.row(moment)
                self._place(handles, actor.rotation[row], actor.position[row], actor.center[row])
                self._press(handles, arrows(actor, row, handles["radius"]))

    def _place(self, handles: dict[str, Any], rotation: np.ndarray, position: np.ndarray, center: np.ndarray) -> None:
        turns = quaternions(rotation)
        for body, turn, place in zip(handles["bodies"], turns, position, strict=True):
            body.wxyz, body.position = turn, place
        handles["com"].position = center

    def _press(self, handles: dict[str, Any], lines: list[tuple[np.ndarray, np.ndarray]]) -> None:
        if handles["forces"] is not None:
            handles["forces"].remove()
        radius = handles["radius"]
        handles["forces"] = (
            self._scene.add_arrows(
                f"{handles['root']}/forces", np.asarray(lines, np.float32), (220, 40, 40),
                shaft_radius=0.008 * radius, head_radius=0.02 * radius, head_length=0.05 * radius,
                visible=self._shown["forces"].value,
            )
            if lines
            else None
        )  # fmt: skip

    def _show_chosen(self) -> None:
        with self._lock:
            for handles in self._handles:
                for body in handles["bodies"]:
                    body.show_axes = self._shown["frames"].value
                handles["com"].visible = self._shown["com"].value
                for node, opacity in handles["meshes"]:
                    faint = 0.4 * opacity if self._shown["inside"].value else opacity
                    node.opacity = faint if faint < 0.99 else None
                if handles["forces"] is not None:
                    handles["forces"].visible = self._shown["forces"].value

    def _add_clock(self) -> None:
        with self._gui.add_folder("Motion"):
            self._clock = {
                "play": self._gui.add_checkbox("play", True),
                "loop": self._gui.add_checkbox("loop", True),
                "speed": self._gui.add_slider("speed", 0.1, 2.0, 0.1, 1.0),
                "time": self._gui.add_slider("time [s]", 0.0, max(self._end, 1e-3), 1e-3, 0.0),
            }
        self._clock["time"].on_update(lambda _: self.show(self._clock["time"].value))
        self._player = threading.Thread(target=self._run, daemon=True, name="dynax viewer")
        self._player.start()

    def _run(self) -> None:
        clock, last = self._clock, time.perf_counter()
        while not self._closed.wait(1.0 / RATE):
            now = time.perf_counter()
            if clock["play"].value:
                moment = clock["time"].value + (now - last) * clock["speed"].value
                if moment > self._end:
                    moment = 0.0 if clock["loop"].value else self._end
                    clock["play"].value = clock["loop"].value
                clock["time"].value = moment  # its `on_update` moves the robots
            last = now

    # By hand -----------------------------------------------------------------------------------------------------

    def _add_sliders(self, k: int) -> None:
        actor = self._stage[k]
        model, moved = actor.model, sliders(actor.model, actor.q[0])
        pose = jax.jit(lambda q: (forward_kinematics(model, q), center_of_mass(model, q)))
        values = np.array([slider.value for slider in moved])
        state = {"q": jnp.asarray(actor.q[0])}

        def move(number: int, value: float) -> None:
            values[number] = value
            state["q"] = configuration(model, actor.q[0], moved, values, number, state["q"])
            found, center = jax.tree.map(np.asarray, pose(state["q"]))
            rotation = np.concatenate([found.rotation, np.eye(3)[None]])
            with self._lock, self._server.atomic():
                self._place(self._handles[k], rotation, np.concatenate([found.translation, np.zeros((1, 3))]), center)

        with self._gui.add_folder(actor.name):
            for number, slider in enumerate(moved):
                low, high = slider.limits
                handle = self._gui.add_slider(slider.name, low, high, (high - low) / 1000.0, slider.value)
                handle.on_update(lambda event, number=number: move(number, event.target.value))

    # To a file ---------------------------------------------------------------------------------------------------

    def save_html(self, file: str | os.PathLike) -> Path:
        """Write a page that shows the motion, to be played and looped, and opens without Python and without network."""
        path = Path(file)
        if not path.parent.is_dir():
            raise ModelError("its folder does not exist", file=str(path), hint="make the folder")
        with self._stopped():
            path.write_text(self._recorded().as_html(), encoding="utf-8")
        return path

    def _recorded(self) -> Any:
        self.show(0.0)
        record = self._server.get_scene_serializer()
        for moment in np.arange(1, int(self._end * RATE) + 1) / RATE:
            record.insert_sleep(1.0 / RATE)
            self.show(float(moment))
        return record

    @contextlib.contextmanager
    def _stopped(self) -> Iterator[None]:
        """While nothing plays."""
        playing = self._clock and self._clock["play"].value
        if playing:
            self._clock["play"].value = False
            time.sleep(2.0 / RATE)
        yield
        if playing:
            self._clock["play"].value = True

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """In a notebook: the page itself, as it can be saved."""
        import html

        with self._stopped():
            page = html.escape(self._recorded().as_html(), quote=True)
        frame = f'<iframe srcdoc="{page}" width="100%" height="420" style="border:1px solid #ddd"></iframe>'
        if not self._closed.is_set():
            frame += f'<a href="{self.url}" target="_blank">{self.url}</a>'  # sliders and buttons, while Python runs
        return {"text/html": frame, "text/plain": repr(self)}

    # Its end -----------------------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Until `close()` is called or Ctrl-C pressed."""
        with contextlib.suppress(KeyboardInterrupt):
            self._closed.wait()
        self.close()

    def close(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            if self._player is not None and self._player is not threading.current_thread():
                self._player.join()  # a last picture is not to go to a server that has ended
            with _silence():
                self._server.stop()

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed.is_set() else self.url
        return f"Viewer({state}, {', '.join(actor.name for actor in self._stage)})"


def view(robot: Any, motion: Any = None, *, host: str = "127.0.0.1", port: int = 8080, **options: Any) -> Viewer:
    """Show a robot in a browser, at `Viewer.url`.

        viewer = dx.view("robot.urdf")                    # sliders for its joints
        viewer = dx.view("robot.urdf", motion)            # play, scrub and loop a `Trajectory`
        viewer.save_html("motion.html")

    **Arguments:**

    - `robot`: a URDF, an MJCF or a saved model, by path or as text; a model of any kind; a `contact.Scene`. Bodies look
      as the file says; else as the scene's shapes; else as the box with their inertia.
    - `motion`: a `Trajectory`, or one of each robot of a batch, its leaves with an axis in front; a configuration
      `(nq,)`, or one of each robot `(B, nq)`. None, or one configuration: sliders move the joints within their limits
      (rotations of several freedoms by rotation vectors), and loops stay closed. None begins as the MJCF is drawn, if
      `robot` is one (joints at their `ref`, free bodies where they stand), and else at the neutral configuration.
    - `host`: who may look; by default this computer alone. `port`: the first that is tried.
    - `look`: the URDF or MJCF that says what a model looks like. `root`, `packages`: as `dx.load_scene` takes them.
    - `ghost`: a motion to compare with, drawn transparent. `forces`: arrows, what `dx.viz.contact_forces` gives.
    - `most`: robots of a batch that are shown, default 16. `spacing`: puts them on a square grid, so far apart [m].
    - `name`: of the robot on the page.

    Returns a `Viewer`, which a notebook shows. Needs `pip install "dynax[view]"`.
    """
    viewer = Viewer(host=host, port=port)
    try:
        return viewer.add(robot, motion, **options)
    except BaseException:
        viewer.close()
        raise

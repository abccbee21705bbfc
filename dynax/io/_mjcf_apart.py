"""MuJoCo's compiler in a process of its own: files of strangers can crash it, or keep it busy for hours.

The child reads a request from a folder, leaves there what it compiled or why not, and ends. It has a limit of time, and
of memory where the system has one (`RLIMIT_DATA`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from dynax.errors import ModelError
from dynax.io._mjcf_compile import Compiled, compile_mjcf, import_mujoco

SECONDS = 60.0
"""What the child may take; starting it is some two of them."""
MEMORY = 4 << 30
"""What the child may take for data [bytes]."""
_CHILD = "import sys; from dynax.io._mjcf_apart import child; child(sys.argv[1])"
_ERROR = ("reason", "element", "file", "line", "hint")


def compile_apart(text: str | bytes, file: str | None, *, collide: bool = False) -> Compiled:
    """`compile_mjcf` in a child process: whatever becomes of it there is a `ModelError` here."""
    mujoco = import_mujoco()
    with tempfile.TemporaryDirectory(prefix="dynax") as folder:
        source = Path(folder, "source")
        source.write_bytes(text.encode(errors="surrogatepass") if isinstance(text, str) else text)
        # A path keeps its meaning in another folder; messages show it as it was given.
        request = {"file": file and os.path.abspath(file), "is_text": isinstance(text, str), "collide": collide}
        Path(folder, "request.json").write_text(json.dumps(request))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        try:
            ended = subprocess.run(
                [sys.executable, "-c", _CHILD, folder],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise ModelError(f"MuJoCo's compiler was stopped after {SECONDS:g} s", file=file) from None
        answer = Path(folder, "answer.json")
        if not answer.exists():
            raise ModelError(f"MuJoCo's compiler {_fate(ended)}", file=file)
        found = json.loads(answer.read_text())
        if "error" in found:
            raise ModelError(**{**found["error"], "file": file if found["error"]["file"] else None})
        compiled = mujoco.MjModel.from_binary_path(str(Path(folder, "model.mjb")))
    return Compiled(compiled, found["name"], tuple(found["warnings"]), tuple(found["missing"]))


def _fate(ended: subprocess.CompletedProcess) -> str:
    if ended.returncode < 0:
        return f"was ended by the system: {signal.Signals(-ended.returncode).name}"
    said = ended.stderr.decode(errors="replace").strip().splitlines()
    return f"failed: {said[-1]}" if said else f"ended with status {ended.returncode}"


def child(folder: str) -> None:
    """What the child does."""
    request, mujoco = json.loads(Path(folder, "request.json").read_text()), import_mujoco()
    text = Path(folder, "source").read_bytes()
    _limit_memory()
    try:
        found = compile_mjcf(text.decode() if request["is_text"] else text, request["file"], collide=request["collide"])
        mujoco.mj_saveModel(found.model, str(Path(folder, "model.mjb")), None)
        answer = {"name": found.name, "warnings": found.warnings, "missing": found.missing}
    except ModelError as error:
        answer = {"error": {name: getattr(error, name) for name in _ERROR}}
    Path(folder, "answer.json").write_text(json.dumps(answer))


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))

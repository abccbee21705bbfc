"""CUDA's run-time compiler, which comes with JAX for CUDA."""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache
from pathlib import Path

FLAGS = ("-default-device", "-prec-div=false")
"""Division to two units in the last place, as XLA has it on a GPU."""
QUICK = "--Ofast-compile=min"
"""Half the time in the compiler, and of long texts fewer numbers that do not fit into registers: a quadruped's step on
the ground 38 kB instead of 58. Compilers before 12.9 do not know it."""


class CompilerError(Exception):
    """CUDA's compiler is not there, or refuses a text."""


@lru_cache(maxsize=512)
def ptx(text: str, architecture: str) -> str:
    """The text compiled for an architecture, such as `compute_90`, or newer."""
    library = _library()
    quick = (QUICK,) if _version(library) >= (12, 9) else ()
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"dynax.cu", 0, None, None)
    try:
        options = [option.encode() for option in (*FLAGS, *quick, f"--gpu-architecture={architecture}")]
        failed = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        if failed:
            raise CompilerError(_told(library, program, "ProgramLog")[:500])
        return _told(library, program, "PTX")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def present() -> str:
    """Empty, or what keeps the compiler from being used."""
    try:
        _library()
    except (CompilerError, OSError) as error:
        return str(error)
    return ""


def _version(library: ctypes.CDLL) -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def _told(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> str:
    size = ctypes.c_size_t()
    getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    own = ctypes.create_string_buffer(max(size.value, 1))
    getattr(library, f"nvrtcGet{what}")(program, own)
    return own.value.decode(errors="replace")


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    for folder in sys.path:
        for file in sorted(Path(folder or ".").glob("nvidia/*/lib/libnvrtc.so.*"), reverse=True):
            if ".alt" in file.name:
                continue
            for own in file.parent.glob("libnvrtc-builtins.so.*"):  # which it would look for elsewhere
                if ".alt" not in own.name:
                    ctypes.CDLL(str(own), mode=ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(str(file))
    for name in ("libnvrtc.so.13", "libnvrtc.so.12"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CompilerError("there is no libnvrtc: it comes with `pip install jax[cuda13]`")

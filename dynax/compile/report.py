"""What a user may ask about how programs run."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from dynax.compile import versions
from dynax.compile.gpu import call as on_gpu


@dataclass(frozen=True)
class CompileReport:
    """How programs of this process run."""

    jax: str
    """The version of JAX."""
    backend: str
    """The platform that programs are compiled for by default."""
    devices: int
    """How many devices of it the process has; on a CPU, how many cores `dx.batch` uses."""
    one_kernel: bool
    """Whether a whole algorithm becomes one kernel, which is faster to run and to compile."""
    reason: str
    """Why, or why not."""

    def __str__(self) -> str:
        kernels = "in one kernel each" if self.one_kernel else "in many kernels"
        return f"JAX {self.jax}, {self.devices} x {self.backend}: algorithms run {kernels} ({self.reason})"


def compile_report() -> CompileReport:
    """How algorithms are compiled in this process: the version of JAX, the devices, and whether in one kernel.

    Asks JAX for its devices, which initialises them; of a version of JAX that dynax does not know, the answer comes
    from a trial in a process of its own, made once.
    """
    backend = jax.default_backend()
    if backend == "gpu":
        works, reason = on_gpu.answer()
    elif backend == "cpu":
        works, reason = versions.answer()
    else:
        works, reason = False, "there are such kernels on CPUs and NVIDIA GPUs"
    return CompileReport(jax.__version__, backend, jax.local_device_count(), works, reason)

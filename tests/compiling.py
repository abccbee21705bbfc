"""How XLA compiles in the tests: most of them compile much and run little.

JAX 0.10 compiles in half the time without the emitters by MLIR; newer versions have no others. Parts of a program that
are compiled side by side take a twentieth more in sum, and each core has a worker of its own.
"""

from __future__ import annotations

import re

import jax

OLDEST = jax.__version_info__[:2] == (0, 10)
QUICKLY = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1" if OLDEST else ""
OPTIMISED = {"xla_cpu_use_fusion_emitters": True} if OLDEST else {}
"""Compiler options with which a program is compiled as for users, in a test that asks for `optimised`."""


def kernels(program: str) -> int:
    """How many algorithms of a lowered program are marked to be one kernel each: all of them have several results, the
    lines in them that fusion does not cross have one."""
    return len(re.findall(r'%\w+:\d+ = .*xla_cpu_small_call = "true"', program))

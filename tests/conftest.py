"""What holds for all tests: float64, and randomness that depends on the test's name alone."""

from __future__ import annotations

import gc
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from compiling import QUICKLY

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICKLY}".strip()
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)
# A fifth of the time of tracing goes into looking for garbage that is not there.
gc.freeze()
gc.disable()


def _seed(request: pytest.FixtureRequest) -> int:
    return zlib.crc32(request.node.nodeid.encode())


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """A NumPy generator that gives each test the same numbers in any order, selection or worker."""
    return np.random.default_rng(_seed(request))


@pytest.fixture
def key(request: pytest.FixtureRequest) -> jax.Array:
    """A JAX key, seeded like `rng`."""
    return jax.random.key(_seed(request))


@pytest.fixture
def optimised():
    """XLA's optimiser, where a test runs long or looks at what is compiled: most tests compile much and run little."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


MEMORY = 2 * 2**30
"""What a worker may keep from file to file [bytes]."""


@pytest.fixture(scope="module", autouse=True)
def _release_compiled_programs():
    """Compiled programs add up to gigabytes; up to some two, the next file finds what it shares with those before."""
    yield
    status = Path("/proc/self/statm")  # of Linux
    if not status.exists() or int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") > MEMORY:
        jax.clear_caches()
        gc.collect()


LONGEST = ("test_pinocchio.py", "test_compile_time.py", "test_float32.py", "test_derivatives.py", "test_gradients.py")
"""Files of minutes. They go first, so that no worker is left alone with one at the end."""


SLOW = Path(__file__).with_name("slow_tests.txt")
"""The tests that take long as measured by `--costs`, one a line; what a test itself says is `pytest.mark.slow`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", metavar="K/N", help="only the tests of part K of N, drawn by their names")
    parser.addoption("--costs", metavar="FILE", help="append the CPU seconds of each test to FILE")


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow = {line for line in SLOW.read_text().splitlines() if line and not line.startswith("#")}
    for item in items:
        if item.nodeid in slow:
            item.add_marker(pytest.mark.slow)
    unknown = sorted(slow - {item.nodeid for item in items})
    if unknown and config.args == config.getini("testpaths"):  # all tests are here
        raise pytest.UsageError(f"{SLOW.name} names tests that do not exist: {', '.join(unknown)}")
    if config.getoption("--part"):
        part, count = map(int, config.getoption("--part").split("/"))
        others = [item for item in items if zlib.crc32(item.nodeid.encode()) % count != part]
        items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % count == part]
        config.hook.pytest_deselected(items=others)
    rank = {name: k for k, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.name, len(LONGEST)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    before, file = sum(os.times()[:4]), item.config.getoption("--costs")
    result = yield
    if file:
        with open(file, "a") as costs:
            costs.write(f"{sum(os.times()[:4]) - before:.2f} {item.nodeid}\n")
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """One worker runs a whole file, so that what its tests compile is compiled once; in the order of collection."""
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False
    return LoadFileScheduling(config, log)

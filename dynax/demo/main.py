"""The demonstration from beginning to end."""

from __future__ import annotations

import time
from importlib import resources
from pathlib import Path

import jax

import dynax as dx
from dynax.demo.batch import run_batch
from dynax.demo.checks import check
from dynax.demo.identify import find_masses
from dynax.demo.page import check_output, draw
from dynax.demo.progress import Progress
from dynax.demo.reach import reach
from dynax.demo.setting import prepare


def run(source: str | None = None, *, root: str = "fixed", output: str = "dynax_demo.png", quick: bool = False) -> bool:
    """Run all parts on a robot (default: the seven-joint arm that comes with dynax); whether everything succeeded.

    **Arguments:** `source`, `root`: what `dx.load` takes; `output`: where the figures go, `ModelError` at once where
    they cannot; `quick`: fewer steps.

    It computes in float64, so it switches JAX to 64 bits: call it in a process of its own.
    """
    check_output(Path(output))
    jax.config.update("jax_enable_x64", True)
    begin = time.perf_counter()
    model = dx.load(source, root=root) if source else load_arm(root)
    print(model)
    for finding in model.report:
        print(f"  note: {finding}")
    setting, progress = prepare(model), Progress(6)

    print("\n1. Does it agree with itself?")
    progress.stage("forward and inverse dynamics, a free motion")
    checks = check(setting, 200 if quick else 1000)
    progress.clear()
    print(f"   inverse dynamics undoes forward dynamics to {checks.inverse_of_forward:.1e} N m")
    print(f"   energy of a free motion drifts by {checks.energy_drift:.1e} of what is exchanged")
    if not checks.inverse_of_forward < 1e-4:
        print("   forward dynamics is not finite or not accurate: see the notes above on links without inertia")
        return False

    print("\n2. A batch of robots")
    progress.stage("a rollout of a batch")
    batch = run_batch(setting, 100 if quick else 1000, 100)
    progress.clear()
    print(
        f"   {batch.robots} robots, {batch.steps} steps each: {batch.seconds:.2f} s, "
        f"{batch.steps_per_second:,.0f} steps/s in float32 (compiled in {batch.compile_seconds:.1f} s)"
    )

    print("\n3. Torques that bring the hand to a target, by dynax.optimize")
    reached = reach(setting, 60 if quick else 100, 100, progress)
    progress.clear()
    before, after = (1e3 * reached.away(path) for path in (reached.path_before, reached.path_after))
    print(f"   {reached.status} after {len(reached.costs)} iterations: the hand ends {after:.1f} mm from the target, "
          f"{before:.0f} mm before")  # fmt: skip

    print("\n4. Link masses from a motion, by dynax.identify")
    progress.stage("a motion, and the masses of a model that moves so")
    masses = find_masses(setting, 60 if quick else 100, 12)
    progress.clear()
    print(f"   {masses.status} after {masses.iterations} iterations")
    hidden = [name for name, visible in zip(masses.names, masses.visible, strict=True) if not visible]
    print(f"   largest error {masses.error(masses.perturbed):.0%} before, {masses.error(masses.recovered):.1e} after")
    if hidden:
        print(f"   not in the motion, so not counted: {', '.join(hidden)}")

    progress.stage("the figures")
    draw(Path(output), model.name, checks, batch, reached, masses)
    progress.clear()
    print(f"\nfigures: {output}    total {time.perf_counter() - begin:.0f} s")
    return checks.energy_drift < 1e-6 and reached.reached and masses.error(masses.recovered) < 1e-3


def load_arm(root: str = "fixed") -> dx.Model:
    """The seven-joint arm that comes with dynax."""
    return dx.load(resources.files("dynax").joinpath("models/arm7.urdf").read_text(), root=root)

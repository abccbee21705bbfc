"""Exudyn beside dynax: a hub that turns and drifts with a beam that swings, masses and modes the same
(`ObjectFFRFreducedOrder`).

    python -m benchmarks.peers.exudyn

prints where the tip is by Exudyn over a second, the digits of `tests/flexible/test_exudyn.py`, how far dynax is from
it, and the time of a step of each. Needs `pip install exudyn`.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx

MODES, LENGTH = 4, 3.0
SPIN, VELOCITY = np.array([0.4, 0.5, -0.6]), np.array([0.1, -0.2, 0.3])
RATES = np.array([0.2, -0.3, 0.2, 0.1])
"""Of the modes, at the beginning."""
HUB = 0.3 * np.vstack([np.eye(3), -np.eye(3)])
"""Where its six particles of one kilogram stand [m]."""
SAMPLES = np.linspace(0.1, 1.0, 10)


def beam() -> tuple[dx.FiniteElements, dx.Modes]:
    """Its mass at the nodes, which have no inertia of their own: Exudyn's nodes have three freedoms."""
    section = dx.BeamSection(EA=1e6, EIy=6000.0, EIz=9000.0, GJ=5000.0, mass_per_length=0.8)
    elements = dx.beam_elements(section, LENGTH, elements=6, lumped=True)
    return elements, elements.modes(MODES, held={"base": "123456"})


def model() -> dx.FlexibleModel:
    elements, modes = beam()
    builder = dx.ModelBuilder(gravity=(0, 0, 0), name="hub and beam")
    builder.body("hub", joint=dx.Free(), inertia=dx.SpatialInertia(6.0, (0, 0, 0), (0.36, 0.36, 0.36)))
    built = builder.body("beam", parent="hub", inertia=elements.body(modes, level="full")).build()
    assert isinstance(built, dx.FlexibleModel)
    return built


def begin(own: dx.FlexibleModel) -> tuple[jax.Array, jax.Array]:
    return dx.neutral(own), jnp.asarray(np.concatenate([SPIN, VELOCITY, RATES]))


def by_dynax(dt: float) -> np.ndarray:
    """The tip at `SAMPLES`, shape `(10, 3)`."""
    own = model()
    steps = round(SAMPLES[0] / dt)
    forces = np.zeros((steps * len(SAMPLES), own.nv))
    path = dx.rollout(own, *begin(own), forces, dt, stepper="rk4", every=steps, checkpoint=False)
    return np.asarray(jax.jit(jax.vmap(lambda q: dx.frame_pose(own, q, "beam/tip").translation))(path.q[1:]))


def times(dt: float, steps: int, batch: int) -> dict[str, float]:
    """Seconds of a step of `rk4`: alone, a state in a batch, and alone with the slope of the tip by the stiffness."""
    own = model()
    q, v = begin(own)

    def tip(scale: jax.Array, v: jax.Array) -> jax.Array:
        stiffer = own.replace(bodies=(replace(own.bodies[0], stiffness=scale * own.bodies[0].stiffness),))
        path = dx.rollout(stiffer, q, v, jnp.zeros((steps, own.nv)), dt, stepper="rk4", checkpoint=False)
        return dx.frame_pose(own, path.q[-1], "beam/tip").translation

    one = jnp.ones(())
    calls = {
        "alone": (jax.jit(tip), (one, v), 1),
        "batch": (jax.jit(jax.vmap(tip, in_axes=(None, 0))), (one, jnp.tile(v, (batch, 1))), batch),
        "slope": (jax.jit(lambda scale, v: jax.jvp(lambda x: tip(x, v), (scale,), (one,))), (one, v), 1),
    }
    found = {}
    for name, (call, arguments, count) in calls.items():
        jax.block_until_ready(call(*arguments))
        samples = []
        for _ in range(3):
            started = time.perf_counter()
            jax.block_until_ready(call(*arguments))
            samples.append(time.perf_counter() - started)
        found[name] = min(samples) / (steps * count)
    return found


def by_exudyn(dt: float) -> tuple[np.ndarray, float]:
    """The same, by generalised alpha without numerical damping, and the seconds of a step."""
    import exudyn as exu
    from exudyn.FEM import FEMinterface, ObjectFFRFreducedOrderInterface
    from scipy.linalg import block_diag
    from scipy.sparse import csr_matrix

    elements, modes = beam()
    shifts = elements.freedoms[:, 1] < 3
    shapes = np.vstack([np.zeros((3 * len(HUB), MODES)), modes.shapes[shifts]])  # the hub does not bend
    mass = block_diag(np.eye(3 * len(HUB)), elements.mass[np.ix_(shifts, shifts)])
    fem = FEMinterface()
    fem.nodes = {"Position": np.vstack([HUB, elements.position])}
    fem.massMatrix = csr_matrix(mass)
    # Any stiffness will do whose projection on the modes is theirs.
    fem.stiffnessMatrix = csr_matrix(mass @ shapes @ modes.stiffness @ shapes.T @ mass)
    fem.modeBasis = {"matrix": shapes, "type": "NormalModes"}
    mbs = exu.SystemContainer().AddSystem()
    body = ObjectFFRFreducedOrderInterface(fem).AddObjectFFRFreducedOrder(
        mbs, initialVelocity=list(VELOCITY), initialAngularVelocity=list(SPIN)
    )
    mbs.SetNodeParameter(body["nGenericODE2"], "initialCoordinates_t", list(RATES))
    sensor = mbs.AddSensor(
        {
            "sensorType": "SuperElement",
            "bodyNumber": body["oFFRFreducedOrder"],
            "meshNodeNumber": len(HUB) + len(elements.position) - 1,
            "outputVariableType": exu.OutputVariableType.Position,
            "storeInternal": True,
            "writeToFile": False,
        }
    )
    mbs.Assemble()
    settings = exu.SimulationSettings()
    settings.timeIntegration.endTime = 1.0
    settings.timeIntegration.numberOfSteps = steps = round(1.0 / dt)
    settings.timeIntegration.generalizedAlpha.spectralRadius = 1.0
    settings.timeIntegration.generalizedAlpha.computeInitialAccelerations = True
    settings.timeIntegration.newton.relativeTolerance = 1e-9
    settings.timeIntegration.newton.absoluteTolerance = 1e-10
    settings.solution.file.write = False
    settings.solution.sensors.writePeriod = 0.1
    started = time.perf_counter()
    mbs.SolveDynamic(settings)
    taken = time.perf_counter() - started
    stored = mbs.GetSensorStoredData(sensor)
    rows = [int(np.argmin(np.abs(stored[:, 0] - t))) for t in SAMPLES]
    return stored[rows, 1:4], taken / steps


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    jax.config.update("jax_enable_x64", True)
    print("frequencies [Hz]:", beam()[1].frequencies / (2 * np.pi))
    (coarse, _), (fine, seconds) = by_exudyn(5e-5), by_exudyn(2.5e-5)
    exact = fine + (fine - coarse) / 3.0  # of the second order
    moved = np.abs(fine - coarse).max()
    print(f"Exudyn, {1e6 * seconds:.0f} us a step; the last halving of the step moved it by {moved:.1e} m")
    print(np.array2string(exact, precision=9, separator=", "))
    print(f"dynax: off by {np.abs(by_dynax(2.5e-4) - exact).max():.1e} m")
    print("dynax, us a step of rk4:", {name: round(1e6 * x, 2) for name, x in times(1e-3, 100, 1024).items()})


if __name__ == "__main__":
    main()

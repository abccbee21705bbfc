"""A functional environment for learners: `init(key, params)` and `step(state, action)`, a cart-pole to swing up.

Both are pure functions of pytrees: `jax.vmap` makes lanes of them, each with masses, gains and delays of its own, and
`jax.grad` goes through. `gymnasium_environment()` is the same for libraries that speak gymnasium
(`pip install "dynax[gym]"`).
"""

import argparse
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx
from dynax import actuate

DT = 0.02
LENGTH = 250
"""Steps of an episode."""
RAIL = 2.4
"""How far the cart may go [m]."""
SENSORS = {"place": actuate.JointPosition(), "speed": actuate.JointVelocity()}


class Params(NamedTuple):
    """What an episode is played with."""

    model: dx.Model
    drive: actuate.Actuators


class State(NamedTuple):
    params: Params
    q: jax.Array
    v: jax.Array
    drive: Any
    """The actuators' state."""
    steps: jax.Array


def cart_pole() -> Params:
    """A pole of 0.5 m on a cart that a motor pushes, with the lag of its current."""
    b = dx.ModelBuilder()
    b.body(
        "cart", joint=dx.Prismatic((1, 0, 0)), joint_name="rail", inertia=dx.SpatialInertia(1.0, (0, 0, 0), (1, 1, 1))
    )
    pole = dx.SpatialInertia(0.1, (0, 0, 0.25), (0.002, 0.002, 0.0001))
    b.body("pole", parent="cart", joint=dx.Revolute((0, 1, 0)), joint_name="pivot", inertia=pole, damping=0.002)
    model = b.build()
    motor = actuate.CommandLimited(actuate.Filtered(actuate.Direct(20.0), 0.03), -1.0, 1.0)
    return Params(model, actuate.on_joints(model, ["rail"], motor))


def randomised(key: jax.Array, params: Params) -> Params:
    """Params of a lane: masses within 10 %."""
    scale = jax.random.uniform(key, params.model.mass.shape, minval=0.9, maxval=1.1)
    return params._replace(model=params.model.replace(mass=params.model.mass * scale))


def init(key: jax.Array, params: Params) -> tuple[State, jax.Array]:
    """The beginning of an episode, the pole hanging about, and what is seen of it."""
    q = jnp.array([0.0, jnp.pi]) + 0.1 * jax.random.normal(key, (2,))
    state = State(params, q, jnp.zeros_like(q), params.drive.initial(q.dtype), jnp.zeros((), jnp.int32))
    return state, seen(actuate.measure(SENSORS, params.model, q, state.v))


def step(state: State, action: jax.Array) -> tuple[State, jax.Array, jax.Array, jax.Array]:
    """The next state, what is seen of it, the reward, and whether the cart has left its rail.

    `action`: of the motor's force, shape `(1,)`, within -1 and 1.
    """
    model, drive = state.params
    at = drive.starting(state.drive)
    run = dx.rollout(model, state.q, state.v, action[None], DT, actuators=at, sensors=SENSORS)
    q, v, held, said = jax.tree.map(lambda x: x[-1], (run.q, run.v, run.actuators, run.sensors))
    reward = jnp.cos(q[1]) - 0.01 * v[1] ** 2 - 0.1 * q[0] ** 2 - 0.01 * jnp.sum(action**2)
    state = State(state.params, q, v, held, state.steps + 1)
    return state, seen(said), reward, jnp.abs(q[0]) > RAIL


def seen(said: dict[str, jax.Array]) -> jax.Array:
    """Readings as one array, the angle as a point on a circle, shape `(5,)`."""
    (x, angle), speed = said["place"], said["speed"]
    return jnp.stack([x, jnp.sin(angle), jnp.cos(angle), speed[0], speed[1]])


def gymnasium_environment() -> Any:
    """The environment as gymnasium knows them; episodes of `LENGTH` steps, each with masses of its own."""
    import gymnasium

    class CartPole(gymnasium.Env):
        metadata = {"render_modes": []}  # noqa: RUF012 - as gymnasium has it

        def __init__(self) -> None:
            limits = np.array([2 * RAIL, 1, 1, 100, 100], np.float32)
            self.observation_space = gymnasium.spaces.Box(-limits, limits, dtype=np.float32)
            self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
            self.params = cart_pole()
            self.begin, self.advance = jax.jit(init), jax.jit(step)

        def reset(self, *, seed: int | None = None, options: dict | None = None):
            super().reset(seed=seed)
            one, other = jax.random.split(jax.random.key(int(self.np_random.integers(2**31))))
            self.state, observation = self.begin(one, randomised(other, self.params))
            return np.asarray(observation, np.float32), {}

        def step(self, action):
            self.state, observation, reward, done = self.advance(self.state, jnp.asarray(action, self.state.q.dtype))
            over = bool(self.state.steps >= LENGTH)
            return np.asarray(observation, np.float32), float(reward), bool(done), over, {}

    return CartPole()


def speed(lanes: int, count: int) -> tuple[float, float]:
    """Steps per second, and their speed beside that of the bare rollout they are made of: medians of five beginnings.
    Where programs and arrays lie in memory makes one or the other faster by some percent, for as long as they live."""
    rate, part = np.median([side_by_side(lanes, count) for _ in range(5)], axis=0)
    return float(rate), float(part)


def side_by_side(lanes: int, count: int, rounds: int = 9) -> tuple[float, float]:
    """Steps per second and their speed beside the bare rollout's: the medians over rounds of both, one after the other,
    of the second in CPU time, in which other programs count least."""
    params = cart_pole()
    keys = jax.random.split(jax.random.key(0), lanes)
    states, _ = jax.vmap(lambda key: init(key, randomised(key, params)))(keys)
    actions = jax.random.uniform(jax.random.key(1), (count, lanes, 1), minval=-1.0)

    @jax.jit
    def stepped(states, actions):
        def one(states, action):
            states, _, reward, _ = jax.vmap(step)(states, action)
            return states, reward

        return jax.lax.scan(one, states, actions)[1].sum(0)

    @jax.jit
    @jax.vmap
    def bare(state, actions):
        return dx.rollout(state.params.model, state.q, state.v, actions, DT, actuators=state.params.drive).q[-1, 0]

    def seconds(call, *args) -> tuple[float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        call(*args).block_until_ready()
        return time.perf_counter() - wall, time.process_time() - cpu

    both = (stepped, states, actions), (bare, states, actions.swapaxes(0, 1))
    found = np.array([[seconds(*one) for one in both] for _ in range(rounds + 1)])[1:]  # the first compiles
    return lanes * count / float(np.median(found[:, 0, 0])), float(np.median(found[:, 1, 1] / found[:, 0, 1]))


def main() -> None:
    """How fast lanes step."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few lanes, for a smoke test")
    rate, part = speed(64, 20) if parser.parse_args().quick else speed(4096, 100)
    print(f"{rate / 1e6:.2f} million steps per second, {part:.2f} of a bare rollout's speed")


if __name__ == "__main__":
    main()

"""A batch spread over eight devices: each computes its own samples and none speaks to another."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from devices import printed

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "batches.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
(SNIPPET,) = (code for code in EXAMPLES if "Mesh" in code and "argv" not in code)

SCRIPT = """
over_batch = NamedSharding(Mesh(np.array(jax.devices()), ("batch",)), PartitionSpec("batch"))
explicit = NamedSharding(jax.make_mesh((8,), ("batch",), axis_types=(AxisType.Explicit,)), PartitionSpec("batch"))
TALK = r"all-gather|all-to-all|collective-permute|all-reduce|reduce-scatter|collective-broadcast"
size, steps = 1040, 3  # more than a tile, which one device would take them by
rng = np.random.default_rng(0)
q, v, tau = rng.normal(size=(3, size, model.nv))
forces = rng.normal(size=(size, steps, model.nv))

def over(function, *args):
    return jax.jit(jax.vmap(function, in_axes=(None, *(0 for _ in args))))(model, *args)

def same(expected, found, text=""):
    expected, found = jax.tree.leaves(expected), jax.tree.leaves(found)
    return {
        "error": max(float(np.abs(np.asarray(a) - b).max() / np.abs(b).max()) for a, b in zip(found, expected)),
        "axes": [str(y.sharding.spec[0]) for y in found],
        "talk": re.findall(TALK, text),
    }

def compare(function, expected, args, sharding=over_batch):
    args = jax.device_put(args, sharding)
    compiled = jax.jit(function).lower(model, *args).compile()
    everywhere = jax.device_put(model, NamedSharding(sharding.mesh, PartitionSpec()))
    return same(expected, compiled(everywhere, *args), compiled.as_text())

def rollout(model, q, v, forces):
    path = dx.rollout(model, q, v, forces, 0.01)
    return path.q, path.v

fd, state = dx.forward_dynamics, (q, v, tau)
tiled = dx.batch(fd, tile=3)  # 130 samples on each device: the last tile is not full
told = dx.batch(fd, tile=3, sharding=over_batch)
expected = over(fd, *state)
results = {
    "vmap": compare(jax.vmap(fd, in_axes=(None, 0, 0, 0)), expected, state),
    "batch": compare(told, expected, state),
    "batch, outside jit": same(expected, tiled(model, *jax.device_put(state, over_batch))),
}

def slope(**how):
    energies = dx.batch(dx.potential_energy, tile=3, **how)
    return np.asarray(jax.jit(jax.grad(lambda m: jnp.sum(energies(m, q) ** 2)))(model).mass)

relative = float(np.abs(slope(sharding=over_batch) / slope() - 1.0).max())

# By the check of what varies over the devices, which is on if nobody turns it off.
def final(model, q, v, forces):
    return jnp.sum(dx.rollout(model, q, v, forces, 0.01).q[-1] ** 2)

gradient = jax.vmap(jax.grad(final, argnums=(1, 3)), in_axes=(None, 0, 0, 0))

def mapped(function, args):
    split = jax.shard_map(function, mesh=over_batch.mesh, in_specs=(PartitionSpec(), *[over_batch.spec] * 3),
                          out_specs=over_batch.spec)
    return compare(split, jax.jit(function)(model, *args), args)

def backward():
    # Of a robot that floats, the way back has sums that `shard_map` would have moved to where their terms lie.
    builder = dx.ModelBuilder()
    builder.body("hub", joint=dx.Free(), inertia=rod)
    builder.body("arm", parent="hub", joint=hinge, inertia=rod)
    floating = builder.build()
    slope_of_floating = jax.vmap(jax.grad(final, argnums=(1, 3)), in_axes=(None, 0, 0, 0))
    start = np.ones((size, floating.nq)), np.ones((size, floating.nv)), np.ones((size, steps, floating.nv))
    split = jax.shard_map(slope_of_floating, mesh=over_batch.mesh, in_specs=(PartitionSpec(), *[over_batch.spec] * 3),
                          out_specs=over_batch.spec)
    share = [x[: size // 8] for x in start]
    return [
        jax.jit(way).lower(floating, *args).as_text().count('small_call = "true"')
        for way, args in ((slope_of_floating, share), (split, start))
    ]

def within(function, expected, args):
    with jax.set_mesh(explicit.mesh):
        return compare(function, expected, args, explicit)

ways = {
    "vmap, mesh set": lambda: within(jax.vmap(fd, in_axes=(None, 0, 0, 0)), expected, state),
    "batched gradient, mesh set": lambda: within(
        dx.batch(jax.grad(final, argnums=(1, 3))), jax.jit(gradient)(model, q, v, forces), (q, v, forces)
    ),
    "shard_map": lambda: mapped(jax.vmap(fd, in_axes=(None, 0, 0, 0)), state),
    "shard_map, gradient": lambda: mapped(gradient, (q, v, forces)),
    "rollout": lambda: compare(jax.vmap(rollout, in_axes=(None, 0, 0, 0)), over(rollout, q, v, forces), (q, v, forces)),
    "vmap, axes in the types": lambda: compare(jax.vmap(fd, in_axes=(None, 0, 0, 0)), expected, state, explicit),
    "batch, axes in the types": lambda: compare(tiled, expected, state, explicit),
    "kernels of the way back": backward,
}
for name in sys.argv[1:]:
    results[name] = ways[name]()

odd = tuple(x[:-1] for x in state)
cores = dx.batch(fd, tile=3)(model, *odd)
error = float(np.abs(np.asarray(cores) - expected[:-1]).max())
everywhere = {"sharding": [len(cores.sharding.device_set)], "error": error}
stays = dx.batch(fd)(model, *jax.device_put(odd, jax.devices()[3]))
everywhere["committed"] = [device.id for device in stays.sharding.device_set]

on_devices = jax.device_put(state, over_batch)
marked = {
    "vmap": jax.jit(jax.vmap(fd, in_axes=(None, 0, 0, 0))).lower(model, *on_devices).as_text(),
    "batch": jax.jit(told).lower(model, *on_devices).as_text(),
}
kernels = {name: "xla_cpu_small_call" in text for name, text in marked.items()}

print(json.dumps({"devices": jax.device_count(), "cases": results, "gradient": relative, "everywhere": everywhere,
                  "kernels": kernels}))
"""


def found(folder: Path, *ways: str) -> dict:
    """What the script found; the example of the page runs after it in the same process."""
    shutil.copy(ROOT / "dynax" / "models" / "arm7.urdf", folder / "robot.urdf")
    text = printed(8, SCRIPT + SNIPPET, *ways, folder=folder, timeout=300)
    first, shown = text.splitlines()
    assert "PartitionSpec('batch'" in shown or "P('batch'" in shown
    return json.loads(first)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory) -> dict:
    return found(tmp_path_factory.mktemp("sharding"), "shard_map", "vmap, mesh set")


CASES = ("vmap", "batch", "batch, outside jit", "shard_map", "vmap, mesh set")
MORE = (
    *("rollout", "shard_map, gradient", "vmap, axes in the types", "batch, axes in the types"),
    "batched gradient, mesh set",
)


def check(result: dict) -> None:
    assert result["error"] < 1e-15
    assert result["axes"]
    assert set(result["axes"]) == {"batch"}
    assert result["talk"] == []


@pytest.mark.parametrize("case", CASES)
def test_devices_compute_their_own_samples(sharded, case):
    assert sharded["devices"] == 8
    check(sharded["cases"][case])


@pytest.mark.slow
def test_so_they_do_of_rollouts_and_where_types_have_the_axes(tmp_path):
    """And the way back has as many kernels on several devices as on one."""
    cases = found(tmp_path, *MORE, "kernels of the way back")["cases"]
    for case in MORE:
        check(cases[case])
    one, several = cases["kernels of the way back"]
    assert several == one > 0


def test_gradients_of_what_devices_share_are_summed(sharded):
    """The one place where devices must speak: the model is common to all samples."""
    assert sharded["gradient"] < 1e-12


@pytest.mark.parametrize("way", ["vmap", "batch"])
def test_each_device_has_its_kernels(sharded, way):
    assert sharded["kernels"][way]


def test_batches_use_every_core_without_being_told(sharded):
    """Also where the devices do not divide their size; but arrays that were put on a device stay there."""
    assert sharded["everywhere"]["sharding"] == [8]
    assert sharded["everywhere"]["error"] < 1e-12
    assert sharded["everywhere"]["committed"] == [3]

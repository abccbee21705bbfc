"""Functions under every composition of transformations, against a plain loop."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import dynax as dx
from dynax.compile.batching import by_samples, known, trailing
from dynax.compile.tiles import CROWDED, LANES, NEAR, WRITTEN_OUT, even_width


@pytest.fixture(scope="module")
def robot():
    rng = np.random.default_rng(0)
    builder = dx.ModelBuilder()
    for k, joint in enumerate([dx.Free(), dx.Revolute((1, 2, 3)), dx.Helical((0, 1, 0), 0.2)]):
        a = 0.2 * rng.standard_normal((3, 3))
        inertia = dx.SpatialInertia(1.0 + rng.random(), 0.2 * rng.standard_normal(3), a @ a.T + 0.1 * np.eye(3))
        placement = dx.Transform.from_translation(0.3 * rng.standard_normal(3))
        builder.body(f"b{k}", parent="world" if k == 0 else "b0", joint=joint, placement=placement, inertia=inertia)
    model = builder.build()
    keys = jax.random.split(jax.random.key(0), 3)
    q = jax.vmap(lambda key: dx.random_configuration(model, key))(keys)
    v, tau = jax.random.normal(jax.random.key(1), (2, 3, model.nv))
    return model, q, v, tau


def loop(function, *batched):
    return jnp.stack([function(*(x[k] for x in batched)) for k in range(len(batched[0]))])


@pytest.mark.spec("RBDA-X-BATCH")
def test_transformations_compose(robot):
    model, q, v, tau = robot

    def f(q, v, tau):
        return dx.forward_dynamics(model, q, v, tau)

    def close(a, b):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)

    expected = loop(f, q, v, tau)
    close(jax.vmap(f)(q, v, tau), expected)
    close(jax.vmap(f, in_axes=(None, 0, None))(q[0], v, tau[0]), loop(lambda v: f(q[0], v, tau[0]), v))
    close(jax.vmap(jax.vmap(f))(q[None], v[None], tau[None])[0], expected)
    close(dx.batch(lambda q, v, tau: f(q, v, tau), tile=2)(q, v, tau), expected)
    slope = jax.jit(jax.grad(lambda v, q, tau: (f(q, v, tau) ** 2).sum()))
    each = loop(slope, v, q, tau)
    close(jax.vmap(slope)(v, q, tau), each)
    close(jax.jit(jax.grad(lambda v: (jax.vmap(f)(q, v, tau) ** 2).sum()))(v), each)
    forward, reverse = (jax.jit(jax.vmap(jacobian(f, 1))) for jacobian in (jax.jacfwd, jax.jacrev))
    close(forward(q, v, tau), reverse(q, v, tau))
    # Accelerations are of second order in velocities, and their first derivatives' differences exact.
    ahead, behind = (
        jnp.stack([forward(q, v + step, tau).sum(1) for step in side * np.eye(model.nv)], -1) for side in (0.5, -0.5)
    )
    curvature = jax.jit(jax.vmap(jax.hessian(lambda v, q, tau: f(q, v, tau).sum())))
    close(curvature(v, q, tau), ahead - behind)


@pytest.mark.spec("RBDA-X-BATCH")
def test_batches_of_models(robot):
    """Every leaf may carry the batch axis, alone or with the state."""
    model, q, v, tau = robot
    scale = jnp.array([0.5, 1.0, 2.0])
    models = jax.tree.map(lambda leaf: leaf[None] * scale.reshape(-1, *(1,) * leaf.ndim), model)
    models = models.replace(
        placements=dx.Transform(jnp.stack([model.placements.rotation] * 3), models.placements.translation),
        hinges=dx.Transform(jnp.stack([model.hinges.rotation] * 3), models.hinges.translation),
        position_limits=jnp.stack([model.position_limits] * 3),
    )
    one = [jax.tree.map(lambda leaf, k=k: leaf[k], models) for k in range(3)]
    expected = jnp.stack([dx.forward_dynamics(m, q[k], v[k], tau[k]) for k, m in enumerate(one)])
    np.testing.assert_allclose(jax.vmap(dx.forward_dynamics)(models, q, v, tau), expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(
        dx.batch(dx.forward_dynamics, tile=2)(models, q, v, tau), expected, rtol=1e-10, atol=1e-10
    )
    shared = jax.vmap(dx.forward_dynamics, in_axes=(0, None, None, None))(models, q[0], v[0], tau[0])
    np.testing.assert_allclose(
        shared, jnp.stack([dx.forward_dynamics(m, q[0], v[0], tau[0]) for m in one]), rtol=1e-10, atol=1e-10
    )


def test_batch_checks_its_input(robot):
    model, q, v, tau = robot
    with pytest.raises(ValueError, match="different lengths"):
        dx.batch(dx.forward_dynamics)(model, q, v[:2], tau)
    with pytest.raises(ValueError, match="at least 1"):
        dx.batch(dx.forward_dynamics, tile=0)


@pytest.mark.spec("RBDA-X-BATCH")
def test_large_batches_go_by_tiles(robot):
    """Plain `vmap` of more samples than a tile, the last of which is not full."""
    model, q, v, tau = robot
    size = 1501
    state = [jnp.resize(x, (size, x.shape[1])) for x in (q, v, tau)]
    over = jax.jit(jax.vmap(dx.forward_dynamics, in_axes=(None, 0, 0, 0)))
    expected = jnp.resize(loop(partial(dx.forward_dynamics, model), q, v, tau), (size, model.nv))
    np.testing.assert_allclose(over(model, *state), expected, rtol=1e-12, atol=1e-12)

    twice = jax.jit(jax.vmap(jax.vmap(dx.forward_dynamics, in_axes=(None, None, 0, 0)), in_axes=(None, 0, None, None)))
    each = loop(lambda q: over(model, jnp.broadcast_to(q, (size, model.nq)), *state[1:]), q)
    np.testing.assert_allclose(twice(model, q, *state[1:]), each, rtol=1e-12, atol=1e-12)


@pytest.mark.spec("RBDA-X-BATCH")
def test_batches_that_are_filled_up(robot):
    """Of 64 samples, taken as more: values, and derivatives by what moves and by what is the same for all."""
    model, q, v, tau = robot
    size = 64
    assert size in WRITTEN_OUT
    assert len(q) not in WRITTEN_OUT
    state = [jnp.resize(x, (size, x.shape[1])) for x in (q, v, tau)]

    def energy(over, model, q, v, tau):
        return jnp.sum(over(model, q, v, tau) ** 2)

    over = jax.vmap(dx.forward_dynamics, in_axes=(None, 0, 0, 0))
    expected = jnp.resize(loop(partial(dx.forward_dynamics, model), q, v, tau), (size, model.nv))
    np.testing.assert_allclose(jax.jit(over)(model, *state), expected, rtol=1e-12, atol=1e-12)

    slopes = jax.jit(jax.grad(partial(energy, over), argnums=(0, 1), allow_int=True))
    by_model, by_q = slopes(model, *state)
    of_few = [slopes(model, *(x[k : k + 32] for x in state)) for k in (0, 32)]
    np.testing.assert_allclose(by_q, jnp.concatenate([x[1] for x in of_few]), rtol=1e-10, atol=1e-10)
    parts = zip(jax.tree.leaves(by_model), *(jax.tree.leaves(x[0]) for x in of_few), strict=True)
    compared = [(own, a + b) for own, a, b in parts if jnp.issubdtype(own.dtype, jnp.floating)]
    assert any(np.abs(own).max() > 1.0 for own, _ in compared if own.size)
    for own, both in compared:
        np.testing.assert_allclose(own, both, rtol=1e-9, atol=1e-9)


@pytest.mark.spec("RBDA-X-BATCH")
def test_batch_puts_each_tile_in_its_place():
    """No copy of the results is made where the width of a tile does not divide the batch."""
    q = jnp.ones((1501, 7))
    compiled = jax.jit(dx.batch(jnp.outer)).lower(q, q).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < q.nbytes
    np.testing.assert_array_equal(compiled(q, q), jax.vmap(jnp.outer)(q, q))


@pytest.mark.spec("RBDA-X-BATCH")
def test_batch_of_a_function_that_closes_over_what_varies():
    """Keys and counts beside numbers; derivatives by what is closed over and by the batch, and inside other maps."""
    x, count = jnp.linspace(0.0, 1.0, 750).reshape(250, 3), jnp.arange(250)
    keys = jax.random.split(jax.random.key(0), 250)

    def results(mapped, scale, x):
        def one(x, n, key):
            return {
                "x": jnp.sin(scale * x) * n * jax.random.normal(key, (3,)),
                "n": n + 1,
                "key": jax.random.split(key),
            }

        return mapped(one)(x, count, keys)

    tiled, plain = partial(results, partial(dx.batch, tile=112)), partial(results, jax.vmap)
    found, expected = jax.jit(tiled)(2.0, x), plain(2.0, x)
    np.testing.assert_allclose(found["x"], expected["x"], rtol=1e-12)
    np.testing.assert_array_equal(found["n"], expected["n"])
    np.testing.assert_array_equal(jax.random.key_data(found["key"]), jax.random.key_data(expected["key"]))

    def loss(of, scale, x):
        return jnp.sum(of(scale, x)["x"] ** 2)

    def curved(of, scale, x):
        return jnp.sum(jax.grad(partial(loss, of))(scale, x))

    for how, function in ((jax.grad, loss), (jax.jacfwd, loss), (jax.grad, curved)):
        one, other = (jax.jit(how(partial(function, of), argnums=(0, 1)))(2.0, x) for of in (tiled, plain))
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
    scales = jnp.arange(3.0)
    one, other = (jax.vmap(jax.grad(partial(loss, of)), (0, None))(scales, x) for of in (tiled, plain))
    np.testing.assert_allclose(one, other, rtol=1e-10)


@pytest.mark.spec("RBDA-X-BATCH")
def test_jacobians_in_batches():
    """Of states and of models; off the path exact zeros; the rate of `J v` at constant `v` is the bias."""
    builder = dx.ModelBuilder()
    rod = dx.SpatialInertia(1.0, (0.1, 0.2, -0.3), (0.2, 0.3, 0.4))
    for k, (parent, joint) in enumerate(
        [("world", dx.Free()), ("b0", dx.Spherical()), ("b0", dx.Helical((0, 1, 0), 0.2)), ("b1", dx.Universal())]
    ):
        placement = dx.Transform.from_translation((0.1 * k, 0.3, -0.2))
        builder.body(f"b{k}", parent=parent, joint=joint, placement=placement, inertia=rod)
    tool = dx.Transform(np.array([[0, 0, 1.0], [1, 0, 0], [0, 1, 0]]), np.array([0.3, 0.2, 0.1]))
    builder.frame("tool", body="b1", placement=tool)
    model = builder.build()
    scale = jnp.array([0.5, 1.0, 2.0])
    models = jax.tree.map(lambda leaf: leaf[None] * scale.reshape(-1, *(1,) * leaf.ndim), model)
    same = [jnp.stack([x] * 3) for x in (model.placements.rotation, model.hinges.rotation, model.frames.rotation)]
    models = models.replace(
        placements=dx.Transform(same[0], models.placements.translation),
        hinges=dx.Transform(same[1], models.hinges.translation),
        frames=dx.Transform(same[2], models.frames.translation),
    )
    q = jax.vmap(lambda key: dx.random_configuration(model, key))(jax.random.split(jax.random.key(0), 3))
    v = jax.random.normal(jax.random.key(1), (3, model.nv))

    def f(model, q):
        return dx.jacobian(model, q, "tool", frame="body")

    found = jax.vmap(f)(models, q)
    one = [jax.tree.map(lambda leaf, k=k: leaf[k], models) for k in range(3)]
    np.testing.assert_allclose(found, jnp.stack([f(m, x) for m, x in zip(one, q, strict=True)]), atol=1e-14)
    np.testing.assert_array_equal(found[:, :, 9:], 0.0)
    size = 1501  # more than a tile, the last not full
    over = jax.jit(jax.vmap(f, in_axes=(None, 0)))
    many = over(model, jnp.resize(q, (size, model.nq)))
    np.testing.assert_allclose(many, jnp.resize(loop(partial(f, model), q), many.shape), atol=1e-14)

    wrench = jnp.arange(1.0, 7.0)

    def power(t, q, v):
        return wrench @ f(model, dx.integrate(model, q, t * v)) @ v

    rate = jax.jit(jax.vmap(jax.grad(power), in_axes=(None, 0, 0)))(0.0, q, v)
    bias = jax.vmap(lambda q, v: dx.jacobian_bias(model, q, v, "tool", frame="body"))(q, v)
    np.testing.assert_allclose(rate, bias @ wrench, atol=1e-11)


def test_tiles_fill_registers_spread_over_the_cache_and_compute_little_twice():
    for near in (16, 48, 64, NEAR):
        for size in (225, 256, 1000, 1024, 1501, 4096, 4097, 100_000):
            width = even_width(near, size)
            assert width % LANES == 0
            assert width % CROWDED != 0
            assert 0.7 * near < width < 1.3 * near
            assert -(-size // width) * width - size < width
    assert [even_width(NEAR, size) for size in (1024, 1040, 2048, 4096)] == [80, 80, 80, 96]


def test_few_models_with_many_states_each():
    """Fewer along the last axis than fill a register, of which one would be a tile's share."""
    function = trailing(lambda scale, x: scale * jnp.sum(x * x, axis=0))
    scales, states = jnp.arange(1.0, 11.0), jnp.arange(192.0).reshape(64, 3)
    found = jax.jit(jax.vmap(jax.vmap(function, in_axes=(None, 0)), in_axes=(0, None)))(scales, states)
    np.testing.assert_allclose(found, scales[:, None] * jnp.sum(states**2, axis=1), rtol=1e-6)


@pytest.mark.spec("RBDA-X-BATCH")
def test_batches_of_nothing(robot):
    model, q, v, tau = robot
    none = jax.jit(jax.vmap(dx.forward_dynamics, in_axes=(None, 0, 0, 0)))(model, q[:0], v[:0], tau[:0])
    assert none.shape == (0, model.nv)
    for function in (dx.mass_matrix, jax.jacfwd(dx.center_of_mass, 1), jax.grad(dx.potential_energy, 1)):
        found = jax.jit(jax.vmap(function, in_axes=(None, 0)))(model, q[:0])
        assert found.shape == (0, *function(model, q[0]).shape)
    welded = dx.ModelBuilder().build()
    bodiless = jax.jit(jax.vmap(dx.mass_matrix, in_axes=(None, 0)))(welded, jnp.zeros((5, 0)))
    assert bodiless.shape == (5, 0, 0)


def test_a_result_takes_the_place_of_the_last(robot):
    """Which `docs/batches.md` promises of a donated array: no memory is asked for, tile by tile either."""
    model, q, *_ = robot
    matrices = jax.jit(lambda last, q: dx.batch(partial(dx.mass_matrix, model), tile=2)(q), donate_argnums=0,
                       keep_unused=True)  # fmt: skip
    last = jnp.zeros((4, model.nv, model.nv))
    place = last.unsafe_buffer_pointer()
    found = matrices(last, jnp.resize(q, (4, model.nq)))
    assert last.is_deleted()
    assert found.unsafe_buffer_pointer() == place
    np.testing.assert_allclose(found[0], dx.mass_matrix(model, q[0]), rtol=1e-12, atol=1e-12)


def test_models_of_which_some_leaves_are_batched(robot):
    model, q, v, tau = robot
    count = len(q)
    some = model.replace(mass=model.mass * jnp.linspace(1.0, 2.0, count)[:, None], gravity=jnp.zeros((count, 3)))
    found = dx.batch(dx.forward_dynamics)(some, q, v, tau, None)
    for k in range(count):
        one = model.replace(mass=some.mass[k], gravity=some.gravity[k])
        np.testing.assert_allclose(found[k], dx.forward_dynamics(one, q[k], v[k], tau[k]), rtol=1e-10, atol=1e-10)


FOR_NONE = {
    "body_compliances": dx.body_compliances, "diagonal_velocity": lambda m, q: dx.diagonal_velocity(m, q, 0.0 * q[1:]),
    "floating_mass_matrix": dx.floating_mass_matrix, "inverse_mass_matrix": dx.inverse_mass_matrix,
    "jacobian_bias": lambda m, q: dx.jacobian_bias(m, q, 0.0 * q[1:], "b1", frame="world"),
    "divide_and_conquer_dynamics": lambda m, q: dx.divide_and_conquer_dynamics(m, q, 0.0 * q[1:], 0.0 * q[1:]),
}  # fmt: skip


@pytest.mark.parametrize("function", FOR_NONE.values(), ids=FOR_NONE)
def test_batches_of_no_samples(robot, function):
    """A batch may come out empty, as of the samples that passed a test."""
    model, q, *_ = robot
    own = partial(function, model)
    for call in (jax.vmap(own), jax.jit(jax.vmap(own)), dx.batch(own)):
        shapes = jax.tree.map(lambda x: (0, *x.shape), jax.eval_shape(own, q[0]))
        assert jax.tree.map(jnp.shape, call(q[:0])) == shapes


def test_scalars_have_no_samples(robot):
    model, q, *_ = robot
    with pytest.raises(ValueError, match="scalar"):
        dx.batch(lambda model, q, x: x * dx.gravity_force(model, q))(model, q, 2.0)


def test_what_is_linear_can_be_transposed(robot):
    """`M^-1` from forward dynamics, `M` from inverse dynamics: both are their own transposes."""
    model, q, v, tau = (x if isinstance(x, dx.Model) else x[0] for x in robot)
    for function in (dx.forward_dynamics, dx.inverse_dynamics):
        (back,) = jax.linear_transpose(partial(function, model, q, v), tau)(tau)
        ahead = function(model, q, v, tau) - function(model, q, v, 0.0 * tau)
        np.testing.assert_allclose(back, ahead, rtol=1e-9, atol=1e-9)


def test_exported_for_batches_of_any_size(robot):
    model, *state = robot
    (size,) = export.symbolic_shape("b")
    types = [jax.ShapeDtypeStruct((size, *x.shape[1:]), x.dtype) for x in state]
    exported = export.export(jax.jit(jax.vmap(partial(dx.forward_dynamics, model))))(*types)
    expected = jax.vmap(partial(dx.forward_dynamics, model))(*state)
    np.testing.assert_allclose(exported.call(*state), expected, rtol=1e-12)


def test_ranks_need_not_be_promoted(robot):
    model, *state = robot
    with jax.numpy_rank_promotion("raise"):
        assert jax.vmap(partial(dx.forward_dynamics, model))(*state).shape == (len(state[0]), model.nv)


def test_a_function_is_traced_once_for_a_state_and_once_more_for_a_tile():
    traced = []

    def core(model, x):
        traced.append(x.shape)
        return 2.0 * x

    function = trailing(core)
    jax.jit(lambda x: function((), x)).lower(jnp.zeros(7))
    assert traced == [(7,)]
    jax.jit(jax.vmap(lambda x: function((), x))).lower(jnp.zeros((1024, 7)))
    assert traced == [(7,), (7, even_width(NEAR, 1024))]
    jax.jit(jax.vmap(jax.vmap(lambda x: function((), x)))).lower(jnp.zeros((3, 2, 7)))
    assert traced == [(7,), (7, even_width(NEAR, 1024)), (7, 6)]


def test_what_was_found_before_is_not_computed_again():
    """A square root by the derivative of its equation, `2 y dy = dx`."""

    def rule(primals, tangents):
        y = root(*primals)
        return y, tangents[1] / (2.0 * y)

    root = known(rule)

    def function(x):
        return root((), x, jax.lax.stop_gradient(jnp.sqrt(x)))

    x = jnp.linspace(1.0, 2.0, 3000).reshape(1000, 3)
    np.testing.assert_array_equal(jax.jit(jax.vmap(function))(x), jnp.sqrt(x))
    slopes = jax.jit(jax.vmap(jax.grad(lambda x: jnp.sum(function(x)))))(x)
    np.testing.assert_allclose(slopes, 0.5 / jnp.sqrt(x), rtol=1e-15)
    curvature = jax.jit(jax.vmap(jax.hessian(lambda x: jnp.sum(function(x)))))(x[:4])
    np.testing.assert_allclose(curvature, jax.vmap(jnp.diag)(-0.25 * x[:4] ** -1.5), rtol=1e-14)
    alone = jax.jit(jax.vmap(partial(root, ()))).lower(x, x).as_text()
    assert "while" not in alone


def test_what_was_found_is_differentiated_again_by_samples():
    """A cube root by Newton's method, whose derivative is that of one more step from what it found."""
    asked = []

    def step(y, x):
        return (2.0 * y + x / y**2) / 3.0

    def found(scale, x):
        return jax.lax.fori_loop(0, 60, lambda _, y: step(y, scale * x), jnp.ones_like(x)), jnp.sum(x > 1.5)

    def again(value, scale, x):
        asked.append(x.shape)
        y = value[0]
        return step(y, scale * x), value[1]

    root = by_samples(found, again=again)
    x = jnp.linspace(1.0, 2.0, 900).reshape(300, 3)
    scale = jnp.asarray(2.0)
    value, count = jax.jit(jax.vmap(partial(root, scale)))(x)
    assert not asked
    np.testing.assert_allclose(value, np.cbrt(2.0 * x), rtol=1e-15)
    np.testing.assert_array_equal(count, (x > 1.5).sum(axis=1))
    total = lambda scale, x: jnp.sum(root(scale, x)[0])  # noqa: E731
    by_scale, by_x = jax.jit(jax.vmap(jax.grad(total, argnums=(0, 1)), in_axes=(None, 0)))(scale, x)
    assert set(asked) == {(3,)}
    np.testing.assert_allclose(by_x, np.cbrt(2.0) / 3.0 * x ** (-2 / 3), rtol=1e-14)
    np.testing.assert_allclose(by_scale, (np.cbrt(2.0 * x) / 6.0).sum(axis=1), rtol=1e-14)
    ahead = jax.jit(jax.vmap(lambda x: jax.jvp(partial(total, scale), (x,), (x,))[1]))(x)
    np.testing.assert_allclose(ahead, np.cbrt(2.0 * x).sum(axis=1) / 3.0, rtol=1e-14)


def test_what_is_not_asked_for_is_not_transposed():
    """Of two results one: its derivatives, first and second, and a program without those of the other."""

    @trailing
    def both(_, x):
        return x**3, {"other": jnp.sin(x)}

    def first(x):
        return jnp.sum(both((), x)[0])

    x = jnp.linspace(1.0, 2.0, 8)
    np.testing.assert_allclose(jax.jit(jax.grad(first))(x), 3.0 * x**2, rtol=1e-15)
    np.testing.assert_allclose(jax.jit(jax.hessian(first))(x), jnp.diag(6.0 * x), rtol=1e-15)
    np.testing.assert_allclose(jax.jit(jax.jacrev(jax.grad(first)))(x), jnp.diag(6.0 * x), rtol=1e-15)
    other = lambda x: jnp.sum(both((), x)[1]["other"])  # noqa: E731
    np.testing.assert_allclose(jax.jit(jax.grad(other))(x), jnp.cos(x), rtol=1e-14)
    back, of_other = (jax.jit(jax.grad(f)).lower(x).as_text() for f in (first, other))
    assert "cosine" not in back
    assert "cosine" in of_other

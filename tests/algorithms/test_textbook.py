"""Single bodies, chains in other notations, and what the books derive in passing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
import routes
import trees
from dense import Dense, crf, crm, mul, skew

import dynax as dx
from dynax.algorithms.aba import aba
from dynax.algorithms.rnea import rnea
from dynax.linear.solve import solve
from dynax.spatial import Transform


def t(matrix):
    return np.swapaxes(matrix, -1, -2)


@pytest.mark.spec("RBDA-3.6-M1", "RBDA-3.6-M2", "RBDA-3.6-M3", "RBDA-3.3-SUBSP", "RBDA-3.3-EX31", "RBDA-3.5-TA")
def test_one_constrained_body(rng):
    model = trees.build(((-1, dx.Reversed(dx.Planar((1.0, 0.5, 0.2)))),), 3, passive=False)
    q, v, _, tau, external = (np.asarray(x[0]) for x in trees.states(model, 1, seed=2))
    dense = Dense(model, q[None], v[None])
    s, inertia = dense.columns[0][0], dense.inertia
    velocity = dense.velocity[0, 0]
    bias = crf(velocity) @ inertia @ velocity
    # Body axes: a = S qdd + c + v x S qd, less gravity.
    product = dense.product[0, 0] + dense.base[0, 0]
    complement = np.linalg.svd(s)[0][:, 3:]
    assert np.abs(complement.T @ s).max() < 1e-14
    active = s @ np.linalg.inv(s.T @ s)
    force = external[0] + active @ tau
    # By motion subspace, with multipliers, and in generalised coordinates.
    apparent = s.T @ inertia @ s
    first = np.linalg.solve(apparent, s.T @ (force - inertia @ product - bias))
    zero = np.zeros((3, 3))
    system = np.block([[inertia, complement], [complement.T, zero]])
    solution = np.linalg.solve(system, np.concatenate([force - bias, complement.T @ product]))
    a, reaction = solution[:6], complement @ solution[6:]
    np.testing.assert_allclose(s @ first + product, a, atol=1e-12)
    third = np.linalg.solve(apparent, s.T @ force - s.T @ (inertia @ product + bias))
    np.testing.assert_allclose(third, first, rtol=1e-12)
    expected = dx.forward_dynamics(model, q, v, tau, external)
    np.testing.assert_allclose(first, expected, rtol=1e-10)
    # The joint transmits the active force and the reaction.
    forces = np.asarray(dx.joint_forces(model, q, v, expected, external))[0]
    np.testing.assert_allclose(forces, active @ tau - reaction, atol=1e-11)
    # Another way to drive the same freedoms: the same motion, another load on the bearings.
    other = active + complement @ rng.normal(size=(3, 3))
    np.testing.assert_allclose(other.T @ s, np.eye(3), atol=1e-13)
    rhs = np.concatenate([external[0] + other @ tau - bias, complement.T @ product])
    again = np.linalg.solve(system, rhs)
    np.testing.assert_allclose(again[:6], a, atol=1e-11)
    np.testing.assert_allclose(complement @ (solution - again)[6:], (active - other) @ tau, atol=1e-11)
    # The apparent inverse inertia has the range of S and the null space of its complement, in any basis.
    phi = s @ np.linalg.solve(apparent, s.T)
    assert np.linalg.matrix_rank(phi, tol=1e-9) == 3
    np.testing.assert_allclose(phi @ complement, 0.0, atol=1e-13)
    basis = s @ rng.normal(size=(3, 3))
    np.testing.assert_allclose(basis @ np.linalg.solve(basis.T @ inertia @ basis, basis.T), phi, atol=1e-10)
    # A force splits into a part that accelerates and one that the joint opposes.
    push = rng.normal(size=6)
    accelerating = inertia @ phi @ push
    np.testing.assert_allclose(s.T @ (push - accelerating), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.solve(inertia, accelerating), phi @ push, atol=1e-12)
    # Direct sums: any vector has one part along S and one along a complement of it.
    full = np.concatenate([s, complement], 1)
    assert np.linalg.matrix_rank(full) == 6
    parts = np.linalg.solve(full, push)
    np.testing.assert_allclose(s @ parts[:3] + complement @ parts[3:], push, atol=1e-12)


@pytest.mark.spec("RBDA-3.2-COLLECT", "SOA-FORESTBASE")
def test_systems_side_by_side():
    """Two trees in one model move as each by itself."""
    first, second = trees.SCREWS[:4], trees.ARM[:3]
    alone = [trees.build(first, 5), trees.build(second, 5)]
    shifted = tuple((p + len(first) if p >= 0 else p, joint) for p, joint in second)
    both = trees.build(first + shifted, 5)
    n, split = alone[0].num_bodies, alone[0].nv

    def with_numbers_of(model, rows, freedoms):
        """The second tree alone, with the numbers it has in the model of both."""
        changes = {k: getattr(both, k)[rows] for k in ("mass", "com", "inertia")}
        changes |= {k: getattr(both, k)[freedoms] for k in ("armature", "damping", "friction_loss", "stiffness")}
        for k in ("placements", "hinges"):
            pose = getattr(both, k)
            changes[k] = dx.Transform(pose.rotation[rows], pose.translation[rows])
        return model.replace(gravity=both.gravity, **changes)

    q, v, _, tau, external = (x[0] for x in trees.states(both, 1))
    a = dx.forward_dynamics(both, q, v, tau, external)
    parts = [
        dx.forward_dynamics(
            with_numbers_of(alone[0], slice(0, n), slice(0, split)),
            q[: alone[0].nq], v[:split], tau[:split], external[:n],
        ),
        dx.forward_dynamics(
            with_numbers_of(alone[1], slice(n, None), slice(split, None)),
            q[alone[0].nq :], v[split:], tau[split:], external[n:],
        ),
    ]  # fmt: skip
    np.testing.assert_allclose(a, np.concatenate(parts), rtol=1e-10)


@pytest.mark.spec("RBDA-4.3-DH")
def test_denavit_hartenberg():
    """A six-joint arm from its table, against the product of elementary screws by hand."""
    table = np.array([
        (0.0, 0.0, 0.4), (0.1, -np.pi / 2, 0.0), (0.5, 0.0, 0.0), (0.05, -np.pi / 2, 0.6), (0.0, np.pi / 2, 0.0),
        (0.0, -np.pi / 2, 0.1),
    ])  # fmt: skip

    def along(angle, move, axis):
        """Turn about an axis and move along it."""
        r = np.asarray(dx.Rotation.from_axis_angle(np.eye(3)[axis], angle).matrix)
        return Transform(r, move * np.eye(3)[axis])

    builder = dx.ModelBuilder()
    for k, (a, alpha, d) in enumerate(table):
        joint = dx.Prismatic((0, 0, 1)) if k == 2 else dx.Revolute((0, 0, 1))
        # Before joint k: a screw along x, then the offset along z that does not vary.
        place = along(alpha, a, 0) @ along(0.0, d, 2)
        parent = f"l{k - 1}" if k else "world"
        builder.body(f"l{k}", parent=parent, joint=joint, placement=place, inertia=dx.SpatialInertia(1.0))
    model = builder.frame("tip", body="l5", placement=along(0.3, 0.2, 2)).build()
    q = jnp.array([0.3, -1.1, 0.2, 2.0, 0.7, -0.4])
    whole = np.eye(4)
    for k, (a, alpha, d) in enumerate(table):
        theta, slide = (0.0, float(q[k])) if k == 2 else (float(q[k]), 0.0)
        c, s, ca, sa = np.cos(theta), np.sin(theta), np.cos(alpha), np.sin(alpha)
        z = d + slide
        whole = whole @ [[c, -s, 0, a], [s * ca, c * ca, -sa, -sa * z], [s * sa, c * sa, ca, ca * z], [0, 0, 0, 1]]
    last = [[np.cos(0.3), -np.sin(0.3), 0, 0], [np.sin(0.3), np.cos(0.3), 0, 0], [0, 0, 1, 0.2], [0, 0, 0, 1]]
    np.testing.assert_allclose(dx.frame_pose(model, q, "tip").homogeneous, whole @ last, atol=1e-13)


def chain(n):
    builder = dx.ModelBuilder()
    inertia = dx.SpatialInertia(1.0, (0.5, 0.0, 0.0), (0.1, 0.1, 0.1))
    for k in range(n):
        builder.body(f"l{k}", parent=f"l{k - 1}" if k else "world", joint=dx.Revolute((0, 1, k % 2)),
                     placement=problems.at(1.0), inertia=inertia)  # fmt: skip
    return builder.build()


def operations(jaxpr) -> int:
    """Arithmetic on elements, loops counted as often as they run."""
    total = 0
    for eqn in jaxpr.eqns:
        times = eqn.params["length"] if eqn.primitive.name == "scan" else 1
        inner = [getattr(p, "jaxpr", p) for p in eqn.params.values() if hasattr(p, "jaxpr") or hasattr(p, "eqns")]
        if inner:
            total += times * sum(operations(j) for j in inner)
        elif eqn.primitive.name in ("mul", "add", "sub", "div", "sin", "cos", "sqrt", "neg", "add_any"):
            total += int(np.prod(eqn.outvars[0].aval.shape))
    return total


@pytest.mark.spec("RBDA-5.1-CPLX")
@pytest.mark.parametrize("function", [rnea, aba])
def test_cost_is_linear(function):
    counts = []
    for n in (8, 16, 32, 64):
        model, zero = chain(n), jnp.zeros(n)
        counts.append(operations(jax.make_jaxpr(lambda q, m=model, f=function: f(m, q, q, q))(zero).jaxpr))
    exponents = np.diff(np.log(counts)) / np.log(2.0)
    assert np.all(np.abs(exponents - 1.0) < 0.05), f"{counts}"
    steps = np.diff(counts) / [8, 16, 32]
    np.testing.assert_allclose(steps, steps[0], rtol=1e-12)


class Counted(float):
    """A number that counts what is done with it."""

    tally = None

    def __mul__(self, other):
        Counted.tally["m"] += 1
        return Counted(float(self) * float(other))

    def __add__(self, other):
        Counted.tally["a"] += 1
        return Counted(float(self) + float(other))


@pytest.mark.spec("RBDA-5.2-RECUR")
def test_recurrence_and_closed_form(rng):
    """Velocities along a chain: n products and sums by recurrence, n (n + 1) / 2 term by term (eqs. 5.2, 5.3)."""
    n = 7
    s, rates = ([Counted(x) for x in rng.normal(size=n)] for _ in range(2))
    Counted.tally = {"m": 0, "a": 0}
    recursive, velocity = [], Counted(0.0)
    for k in range(n):
        velocity = velocity + s[k] * rates[k]
        recursive.append(velocity)
    assert Counted.tally == {"m": n, "a": n}
    Counted.tally = {"m": 0, "a": 0}
    closed = []
    for k in range(n):
        terms = [s[j] * rates[j] for j in range(k + 1)]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        closed.append(total)
    assert Counted.tally == {"m": n * (n + 1) // 2, "a": n * (n - 1) // 2}
    np.testing.assert_allclose(closed, recursive, rtol=1e-12)
    # Accelerations of a real chain: recurrence (5.4) and double sum (5.5, 2.56), in one frame.
    model, state, _ = routes.case("arm")
    dense = Dense(model, state.q[:1], state.v[:1])
    path = [k for k in range(model.num_bodies) if model.topology.support[3, k]]
    columns = []
    for k in path:  # all in the axes and about the origin of body 3
        x = dense.phi_t[0, 18:24, 6 * k : 6 * k + 6]
        columns.append(x @ dense.columns[k][0][:, 0])
    qd, qdd = np.asarray(state.v[0])[path], np.asarray(state.a[0])[path]
    double = sum(c * x for c, x in zip(columns, qdd, strict=True))
    for i in range(len(path)):
        for j in range(i):
            double = double + crm(columns[j]) @ columns[i] * qd[j] * qd[i]
    np.testing.assert_allclose(double, dense.acceleration(state.a[:1], gravity=False)[0, 3], atol=1e-11)


@pytest.mark.spec("RBDA-5.4-LUH")
def test_newton_euler_in_vectors():
    """Luh, Walker and Paul: 3-D vectors, classical accelerations, forces at centres of mass (table 5.2)."""
    model, state, _ = routes.case("arm")
    rest = model.replace(**{k: 0 * getattr(model, k) for k in ("armature", "damping", "friction_loss", "stiffness")})
    b = len(state.q)
    dense = Dense(rest, state.q, state.v)
    n = model.num_bodies
    w, dw, dv, force, moment = (np.zeros((b, n, 3)) for _ in range(5))
    axes = np.stack([c[:, :3, 0] for c in dense.columns], 1)
    anchors = np.asarray(rest.hinges.translation)
    for i in range(n):
        p, x = model.parents[i], dense.transform[:, i]
        turn = x[:, :3, :3]  # parent to body
        up = np.zeros((b, 3))
        before = (up, up, up - np.asarray(rest.gravity)) if p < 0 else (w[:, p], dw[:, p], dv[:, p])
        cross = -(t(turn) @ x[:, 3:, :3])  # -E^T (-E r x): the skew matrix of the origin
        r = np.stack([cross[:, 2, 1], cross[:, 0, 2], cross[:, 1, 0]], 1)
        rate, change = np.asarray(state.v)[:, i, None], np.asarray(state.a)[:, i, None]
        above = mul(turn, before[0])
        w[:, i] = above + axes[:, i] * rate
        dw[:, i] = mul(turn, before[1]) + axes[:, i] * change + np.cross(above, axes[:, i] * rate)
        # The hinge point belongs to both bodies: through it to the origin of the body.
        hinge = r + mul(t(turn), np.broadcast_to(anchors[i], (b, 3)))
        at_hinge = before[2] + np.cross(before[1], hinge) + np.cross(before[0], np.cross(before[0], hinge))
        back = -np.broadcast_to(anchors[i], (b, 3))
        dv[:, i] = mul(turn, at_hinge) + np.cross(dw[:, i], back) + np.cross(w[:, i], np.cross(w[:, i], back))
    classical = np.concatenate([dw, dv], -1)
    spatial = dense.acceleration(state.a, gravity=True)
    v0 = dense.velocity[..., 3:]
    np.testing.assert_allclose(classical[..., :3], spatial[..., :3], atol=1e-10)
    np.testing.assert_allclose(classical[..., 3:], spatial[..., 3:] + np.cross(w, v0), atol=1e-10)
    mass, com, six = (np.asarray(x) for x in (rest.mass, rest.com, rest.inertia))
    tau = np.zeros((b, n))
    for i in reversed(range(n)):
        xx, yy, zz, xy, yz, xz = six[i]
        central = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        a = dv[:, i] + np.cross(dw[:, i], com[i]) + np.cross(w[:, i], np.cross(w[:, i], com[i]))
        f = mass[i] * a
        about = dw[:, i] @ central + np.cross(w[:, i], w[:, i] @ central)
        force[:, i] += f
        moment[:, i] += about + np.cross(com[i], f)
        tau[:, i] = np.sum(axes[:, i] * (moment[:, i] - np.cross(anchors[i], force[:, i])), 1)
        p = model.parents[i]
        if p >= 0:
            x = dense.transform[:, i]
            handed = mul(t(x), np.concatenate([moment[:, i], force[:, i]], 1))
            moment[:, p] += handed[:, :3]
            force[:, p] += handed[:, 3:]
    y = routes.dynamics("arm", rest, state.q, state.v, state.a, state.tau, 0 * state.external)
    np.testing.assert_allclose(y["id"], tau, atol=1e-10)


@pytest.mark.spec("RBDA-6.6-OPFACT")
def test_one_system_eliminated_in_two_orders():
    """Accelerations, forces and joint accelerations at once (eq. 3.18): one order yields H, another I^A."""
    joints = ((-1, dx.Revolute((0.0, 1.0, 0.0))), (0, dx.Spherical()))
    model = trees.build(joints, 8, passive=False)
    q, v = (x[:1] for x in trees.states(model, 1)[:2])
    dense = Dense(model, q, v)
    n, nv = 12, 4
    link = np.eye(n) - dense.e[0]
    s, inertia, zero = dense.s[0], dense.inertia, np.zeros((n, n))
    system = np.block([
        [inertia, -link.T, np.zeros((n, nv))],
        [-link, zero, s],
        [np.zeros((nv, n)), s.T, np.zeros((nv, nv))],
    ])  # fmt: skip

    def schur(kept):
        gone = np.setdiff1d(np.arange(len(system)), kept)
        return system[np.ix_(kept, kept)] - system[np.ix_(kept, gone)] @ np.linalg.solve(
            system[np.ix_(gone, gone)], system[np.ix_(gone, kept)]
        )

    freedoms = np.arange(2 * n, 2 * n + nv)
    np.testing.assert_allclose(np.abs(schur(freedoms)), np.abs(np.asarray(dx.mass_matrix(model, q[0]))), atol=1e-12)
    # Take the first joint's own row and column away: what remains at body 0 is its articulated inertia.
    rest = np.setdiff1d(np.arange(len(system)), np.r_[n : n + 6, 2 * n])
    keep = np.searchsorted(rest, np.arange(6))
    reduced = system[np.ix_(rest, rest)]
    gone = np.setdiff1d(np.arange(len(rest)), keep)
    articulated = reduced[np.ix_(keep, keep)] - reduced[np.ix_(keep, gone)] @ np.linalg.solve(
        reduced[np.ix_(gone, gone)], reduced[np.ix_(gone, keep)]
    )
    np.testing.assert_allclose(articulated, dense.articulated(model.armature)[0][0, 0], atol=1e-11)


@pytest.mark.spec("CONV-DERIV", "CONV-DERIV-T")
def test_four_formulations_of_a_free_body():
    """About the centre of mass, about another point, in body axes, about an inertial point: one motion."""
    inertia = dx.SpatialInertia(1.7, (0.2, -0.3, 0.4), (0.3, 0.5, 0.4))
    model = dx.ModelBuilder(gravity=(0, 0, 0)).body("body", joint=dx.Free(), inertia=inertia).build()
    q = dx.random_configuration(model, jax.random.key(5))
    v = jnp.array([0.4, -1.2, 0.8, 1.5, 0.3, -0.7])
    a = np.asarray(dx.forward_dynamics(model, q, v, jnp.zeros(6)))  # body axes, body derivative
    pose = dx.forward_kinematics(model, q)
    r, origin = np.asarray(pose.rotation[0]), np.asarray(pose.translation[0])
    own = inertia.matrix
    v = np.asarray(v)

    def at(c):
        """The inertia and velocity about a point at `c` from the origin, world axes."""
        big = np.block([[r, np.zeros((3, 3))], [np.zeros((3, 3)), r]])
        shift = np.block([[np.eye(3), np.zeros((3, 3))], [-skew(c), np.eye(3)]])
        m = np.linalg.inv(shift).T @ big @ own @ big.T @ np.linalg.inv(shift)
        return m, shift @ big @ v

    com = r @ np.array([0.2, -0.3, 0.4])
    # Classical accelerations of the centre and of the origin from the third formulation.
    w, dw = r @ v[:3], r @ a[:3]
    at_origin = r @ (a[3:] + np.cross(v[:3], v[3:]))
    at_com = at_origin + np.cross(dw, com) + np.cross(w, np.cross(w, com))
    spin = np.concatenate([w, np.zeros(3)])
    # 1. About the centre of mass, inertial derivative.
    m, vc = at(com)
    b = crf(spin) @ m @ spin
    np.testing.assert_allclose(m @ np.concatenate([dw, at_com]) + b, 0.0, atol=1e-12)
    assert abs(spin @ b) < 1e-12
    assert abs(vc @ b) < 1e-12
    # 2. About the body's origin, inertial derivative: b = [w x J w; m w x (w x p)], which does work.
    m, vz = at(np.zeros(3))
    b = np.concatenate([np.cross(w, m[:3, :3] @ w), 1.7 * np.cross(w, np.cross(w, com))])
    np.testing.assert_allclose(m @ np.concatenate([dw, at_origin]) + b, 0.0, atol=1e-12)
    assert abs(vz @ b) > 1e-3
    # 3. Body axes, body derivative: b = V x* M V, which does none, but depends on the velocity of the origin.
    b = crf(v) @ own @ v
    np.testing.assert_allclose(own @ a + b, 0.0, atol=1e-12)
    assert abs(v @ b) < 1e-12
    faster = v + np.array([0, 0, 0, 1.0, 0, 0])
    assert np.abs(crf(faster) @ own @ faster - b).max() > 1e-3
    # 4. About a fixed point: momentum there is constant.
    m, vi = at(-origin)
    dvi = np.concatenate([dw, at_origin - np.cross(dw, origin) - np.cross(w, r @ v[3:])])
    np.testing.assert_allclose(m @ dvi + crf(vi) @ m @ vi, 0.0, atol=1e-11)
    assert abs(vi @ crf(vi) @ m @ vi) < 1e-11


@pytest.mark.spec("K-POSE")
def test_relative_poses():
    model, state, _ = routes.case("screws")
    q = state.q[0]
    one, other = (dx.frame_pose(model, q, name) for name in ("b3", "b6"))
    relative = one.inverse @ other
    # Through their common ancestor, joint by joint.
    dense = Dense(model, state.q[:1], state.v[:1])

    def down(path):
        x = np.eye(6)
        for body in path:
            x = dense.transform[0, body] @ x
        return x

    x = down([4, 6]) @ np.linalg.inv(down([1, 2, 3]))  # motions of b3 seen from b6
    np.testing.assert_allclose(np.asarray(relative.rotation).T, x[:3, :3], atol=1e-12)
    np.testing.assert_allclose(-x[:3, :3] @ skew(np.asarray(relative.translation)), x[3:, :3], atol=1e-12)


@pytest.mark.spec("RBDA-7.3-ABA")
def test_a_thousand_links():
    """Judged by its residual: the condition number of the mass matrix grows with the fourth power of the length."""
    model = chain(1000)
    rng = np.random.default_rng(0)
    q, v, tau = (jnp.asarray(scale * rng.normal(size=1000)) for scale in (1.0, 0.01, 1.0))
    a = dx.forward_dynamics(model, q, v, tau)
    back = dx.inverse_dynamics(model, q, v, a)
    size = np.abs(dx.mass_matrix(model, q)) @ np.abs(a)  # what the residual is a sum of
    assert np.all(np.abs(back - tau) < 1e-12 * size)
    # A massless tip without armature: nothing resists, and the report says so.
    ghost = dx.ModelBuilder().body("ghost", joint=dx.Revolute()).build()
    assert "singular" in str(ghost.report[0])
    assert not np.all(np.isfinite(dx.forward_dynamics(ghost, jnp.zeros(1), jnp.zeros(1), jnp.ones(1))))


@pytest.mark.spec("RBDA-9.5-MOM", "RBDA-4.1-FLOAT")
def test_a_falling_cat_and_its_other_end():
    """Moving the joints around a loop turns a body that has no momentum; either end may be called the base."""
    ball = dx.SpatialInertia(1.0, (0.0, 0.0, 0.3), (0.2, 0.15, 0.1))
    hinge = dx.Universal((1, 0, 0), (0, 1, 0))
    cat = dx.ModelBuilder().body("rear", joint=dx.Free(), inertia=ball)
    cat = cat.body("front", parent="rear", joint=hinge, inertia=ball).build()

    def rates(q, joint):
        e = dx.floating_equations(cat, q, jnp.zeros(8))
        return jnp.concatenate([-solve(e.base_inertia, e.coupling @ joint), joint])

    steps = 400

    def step(q, k):
        def at(phase, q):
            return rates(q, 2 * jnp.pi / steps * jnp.stack([-jnp.sin(phase), jnp.cos(phase)]))

        phase = 2 * jnp.pi * k / steps
        middle = dx.integrate(cat, q, 0.5 * at(phase, q))
        v = at(phase + jnp.pi / steps, middle)
        return dx.integrate(cat, q, v), dx.momentum(cat, middle, v)

    start = dx.neutral(cat).at[7].set(1.0)
    end, momenta = jax.jit(lambda: jax.lax.scan(step, start, jnp.arange(steps) * 1.0))()
    assert np.abs(momenta).max() < 1e-12
    np.testing.assert_allclose(end[7:], start[7:], atol=1e-4)
    turn = np.asarray(dx.difference(cat, start, end))[:3]
    assert np.linalg.norm(turn) > 0.1
    # The same cat with its front as the base: the hinge the other way round, the same motion of both bodies.
    other = dx.ModelBuilder().body("front", joint=dx.Free(), inertia=ball)
    other = other.body("rear", parent="front", joint=dx.Reversed(hinge), inertia=ball).build()
    v = jnp.asarray(np.random.default_rng(4).normal(size=8))
    tau = jnp.zeros(8).at[6:].set(jnp.array([0.7, -0.3]))
    poses, speeds = dx.forward_kinematics(cat, start), dx.body_velocities(cat, start, v)
    quaternion = dx.Rotation(poses.rotation[1]).quaternion()
    q_other = jnp.concatenate([poses.translation[1], quaternion, start[7:]])
    v_other = jnp.concatenate([speeds[1], v[6:]])
    np.testing.assert_allclose(dx.body_velocities(other, q_other, v_other)[1], speeds[0], atol=1e-12)
    a, a_other = dx.forward_dynamics(cat, start, v, tau), dx.forward_dynamics(other, q_other, v_other, tau)
    np.testing.assert_allclose(a_other[6:], a[6:], atol=1e-10)
    accelerations = dx.body_accelerations(cat, start, v, a)
    np.testing.assert_allclose(dx.body_accelerations(other, q_other, v_other, a_other)[::-1], accelerations, atol=1e-10)

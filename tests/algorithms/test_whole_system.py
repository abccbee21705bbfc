"""All bodies and all constraints at once, for any connectivity (section 3.7)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees
from linkages import four_bar, incidence, of_model

import dynax as dx


def close(a, b, tolerance=1e-10):
    a, b = np.asarray(a), np.asarray(b)
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max(initial=1.0))


@pytest.mark.spec("RBDA-3.7-P")
def test_incidence_of_any_graph(rng):
    """Loops, several joints between two bodies, joints to and from the ground."""
    edges = [(-1, 0), (0, 1), (1, 2), (2, -1), (3, 0), (1, 3), (1, 3), (-1, 4), (4, -1), (2, 4)]
    p = incidence(5, edges)
    v, f = rng.normal(size=(5, 6)), rng.normal(size=(len(edges), 6))
    ground = np.vstack([v, np.zeros(6)])
    across = (p.T @ v.reshape(-1)).reshape(-1, 6)
    on_bodies = np.zeros((6, 6))
    for k, (predecessor, successor) in enumerate(edges):
        close(across[k], ground[successor] - ground[predecessor], 1e-15)
        on_bodies[successor] += f[k]
        on_bodies[predecessor] -= f[k]
    close((p @ f.reshape(-1)).reshape(-1, 6), on_bodies[:5], 1e-14)
    close(f.reshape(-1) @ across.reshape(-1), on_bodies[:5].reshape(-1) @ v.reshape(-1), 1e-14)


@pytest.mark.spec("RBDA-3.7-BIG", "RBDA-3.7-P")
def test_whole_system_of_a_tree():
    model, s = trees.tree("screws"), trees.states(trees.tree("screws"))
    still = {name: 0 * getattr(model, name) for name in ("armature", "damping", "friction_loss", "stiffness")}
    model = model.replace(**still)
    found = jax.jit(jax.vmap(lambda *x: dx.forward_dynamics(model, *x)))(s.q, s.v, s.tau, s.external)
    for k in range(len(s.q)):
        linkage = of_model(model, s.q[k], s.v[k], s.tau[k], s.external[k])
        _, qdd, rank = linkage.whole_system()
        assert rank == 6 * model.num_bodies - model.nv
        close(found[k], qdd)
        close(linkage.closed([]).qdd, qdd)


@pytest.mark.spec("RBDA-3.7-BIG")
@pytest.mark.parametrize(("loosened", "rank"), [(False, 17), (True, 17)])
def test_whole_system_of_a_loop(rng, loosened, rank):
    """Equals the spanning tree with its loop closed (eq. 8.36), whether constraints repeat each other or not."""
    linkage = four_bar(rng, loosened=loosened)
    a, qdd, found = linkage.whole_system()
    assert found == rank
    assert sum(joint.t.shape[1] for joint in linkage.joints) == (17 if loosened else 20)
    closed = linkage.closed([3])
    close(a, closed.accelerations)
    close(qdd[:3], closed.qdd)
    assert np.linalg.matrix_rank(closed.k, tol=1e-9) == 2
    # Moving with the loop closed costs no constraint force any power.
    close(closed.k @ closed.qdd, closed.right)


def test_any_tree_of_the_loop_tells_the_same(rng):
    """The pin that closes the loop is a matter of choice: what is cut does not show."""
    linkage = four_bar(rng)
    a = linkage.whole_system()[0]
    # Cut at the ground instead: the rocker hangs on the coupler.
    crank, coupler, rocker, last = linkage.joints
    other = linkage._replace(joints=[crank, coupler, last, rocker])
    close(other.closed([3]).accelerations, a)
    close(jnp.asarray(other.whole_system()[0]), a)

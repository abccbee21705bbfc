"""The spatial operators against the textbook in dense matrices, and the identities of the papers (Jain; SOA 2.1, 2.2).

On trees with every joint: branched, floating, driven; with and without armature where that matters.
"""

from __future__ import annotations

import jax
import numpy as np
import pytest
import trees
from operators.matrices import FRAMES, block, block_mask, case, close, operators, vectors

NAMES = sorted(trees.TREES)


@pytest.mark.spec("OP-E", "OP-PHI", "OP-H", "OP-M", "SOA-EPHI", "SOA-PHI", "SOA-HOP", "SOA-MOP")
@pytest.mark.parametrize("name", NAMES)
def test_operators_are_the_textbooks_matrices(name):
    c = case(name)
    d, book, carried = c.dense, c.book, c.model.topology.support.T
    close(d["E_phi"], book.e[0].T, 1e-14)
    close(d["H"], book.s[0].T, 1e-14)
    close(d["M"], book.inertia, 1e-14)
    close(d["phi"], np.linalg.inv(np.eye(len(d["phi"])) - d["E_phi"]), 1e-13)
    close(d["phi"] - np.eye(len(d["phi"])), d["phi_t"], 1e-14)
    close(d["psi"] - np.eye(len(d["phi"])), d["psi_t"], 1e-14)
    # phi(j, k) where j carries or is k, and exact zeros elsewhere.
    for key in ("phi", "psi"):
        assert not np.any(d[key][~block_mask(carried)])
    assert np.all(np.abs(d["phi"]).reshape(len(carried), 6, -1, 6).max((1, 3))[carried] > 0)
    depth = int(c.model.topology.depths.max())
    assert np.any(np.linalg.matrix_power(d["E_phi"], depth - 1))
    assert not np.any(np.linalg.matrix_power(d["E_phi"], depth))


@pytest.mark.spec(
    "OP-E", "OP-PHI", "OP-H", "OP-M", "OP-B", "OP-J", "OP-R", "OP-P", "OP-DGK", "OP-PSI", "OP-F", "OP-UPS", "OP-OMEGA",
    "OP-LAM",
)  # fmt: skip
def test_adjoints_and_gradients(rng):
    """<A x, y> = <x, A* y>, the gradient through `mv` is `rmv`, and both are what the matrix does."""
    c = case("mixed")
    every = operators(c.ops, FRAMES["mixed"])
    names = [key for key in every if key not in ("factors", "factored_inverse", "composite", "free_accelerations")]
    xy = {key: vectors(rng, every[key]) for key in names}

    @jax.jit
    def products(ops, xy):
        def one(a, x, y):
            forward, pull = jax.vjp(a.mv, x)
            return forward, a.rmv(y), *pull(y)

        own = operators(ops, FRAMES["mixed"])
        return {key: one(own[key], *xy[key]) for key in names}

    for key, (forward, backward, slope) in products(c.ops, xy).items():
        x, y = (np.asarray(v) for v in xy[key])
        scale = max(1.0, np.abs(c.dense[key]).max())
        assert abs(forward @ y - x @ backward) < 1e-13 * scale * len(x), key
        close(forward, c.dense[key] @ x, 1e-12)
        close(backward, c.dense[key].T @ y, 1e-12)
        close(slope, backward, 1e-13)
    for key, a in every.items():
        assert a.symmetric == a.positive == (key in SYMMETRIC), key
        if key in SYMMETRIC:
            scale = max(1.0, np.abs(c.dense[key]).max())
            close(c.dense[key], c.dense[key].T, 1e-12)
            assert np.linalg.eigvalsh(c.dense[key]).min() > -1e-12 * scale, key


SYMMETRIC = {
    "M", "armature", "R", "P", "P_plus", "D", "mass_matrix", "inverse_mass_matrix", "Upsilon", "Omega", "I", "I_bodies",
    "Lambda", "factors", "factored_inverse", "composite",
}  # fmt: skip


@pytest.mark.spec("OP-R", "CRB-R", "CRB-DEC")
@pytest.mark.parametrize("name", NAMES)
def test_composite_inertias(name):
    c = case(name)
    d = c.dense
    r, phi_t, h = d["R"], d["phi_t"], d["H"]
    close(d["M"], r - d["E_phi"] @ r @ d["E_phi"].T)
    assert not np.any(r[~block_mask(np.eye(c.model.num_bodies, dtype=bool))])
    close(d["composite"], r + phi_t @ r + r @ phi_t.T)
    close(d["composite"], d["phi"] @ d["M"] @ d["phi"].T)
    close((c.ops.phi @ c.ops.M @ c.ops.phi.T).diagonal.dense(), r, 1e-14)
    diagonal, upper = h @ r @ h.T, h @ phi_t @ r @ h.T
    close(diagonal + upper + upper.T + np.diag(c.model.armature), c.mass)
    of = c.model.topology.body_of_velocity
    assert not np.any(diagonal[of[:, None] != of])
    assert not np.any(upper[of[:, None] >= of])


@pytest.mark.spec("OP-P", "OP-DGK", "OP-PSI", "ABI-P", "ABI-D", "ABI-G", "ABI-K", "ABI-TAU", "ABI-PSI")
@pytest.mark.parametrize("armature", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_articulated_inertias(name, armature):
    c = case(name, armature)
    d = c.dense
    e, h, p, plus, g, tau, tau_bar = (d[key] for key in ("E_phi", "H", "P", "P_plus", "G", "tau", "tau_bar"))
    one = np.eye(len(p))
    expected, handed = c.book.articulated(c.model.armature)
    for body in range(c.model.num_bodies):
        close(block(p, body, body), expected[0, body], 1e-13)
        close(block(plus, body, body), handed[0, body], 1e-13)
    close(d["D"], h @ p @ h.T + d["armature"], 1e-13)
    assert np.linalg.eigvalsh(d["D"]).min() > 0
    close(g @ d["D"], p @ h.T, 1e-13)
    close(d["K"], e @ g, 1e-14)
    close(tau, g @ h, 1e-14)
    close(tau_bar, one - tau, 1e-14)
    close(d["E_psi"], e @ tau_bar, 1e-13)
    close(d["psi"] @ (one - d["E_psi"]), one, 1e-13)
    close(plus, tau_bar @ p @ tau_bar.T + g @ d["armature"] @ g.T, 1e-13)
    close(plus, p - g @ d["D"] @ g.T, 1e-13)
    close(d["M"], p - e @ plus @ e.T, 1e-13)
    if armature:
        assert np.abs(h @ g - np.eye(len(h))).max() > 0.01
        return
    close(h @ g, np.eye(len(h)), 1e-13)  # G is a generalised inverse of H
    close(tau @ tau, tau, 1e-13)
    close(tau_bar @ p @ tau.T, 0 * p, 1e-13)
    for other in (tau_bar @ p, p @ tau_bar.T, tau_bar @ p @ tau_bar.T):
        close(plus, other, 1e-13)
    close(h @ plus, 0 * h, 1e-13)
    close(tau_bar @ p @ h.T, 0 * h.T, 1e-13)
    close(d["E_psi"] @ p @ h.T, 0 * h.T, 1e-13)
    close(d["M"], p - d["E_psi"] @ p @ d["E_psi"].T, 1e-13)
    for body, joint in enumerate(c.model.joints):
        if not c.model.topology.children[body]:
            assert np.linalg.matrix_rank(block(plus, body, body), tol=1e-10) <= 6 - joint.nv


@pytest.mark.spec("OP-F", "LEM-0.1", "LEM-0.2", "LEM-0.3", "LEM-0.4", "ERR-1", "SOA-MASS", "SOA-MINV")
@pytest.mark.parametrize("name", NAMES)
def test_innovations_factors(name):
    """With armature too: the rotor belongs to D, and nothing else changes."""
    c = case(name)
    d = c.dense
    h, k, phi, psi, f, w, dd = (d[key] for key in ("H", "K", "phi", "psi", "F", "W", "D"))
    one, inverse = np.eye(len(h)), np.linalg.inv(c.mass)
    close(d["mass_matrix"], c.mass)
    close(h @ phi @ d["M"] @ phi.T @ h.T + d["armature"], c.mass)
    close(f, one + h @ phi @ k, 1e-13)
    close(w, one - h @ psi @ k, 1e-13)
    close(f @ dd @ f.T, c.mass)
    close(d["factors"], c.mass)
    close(w @ f, one, 1e-13)
    close(w.T @ np.linalg.inv(dd) @ w, inverse, 1e-11)
    for key in ("inverse_mass_matrix", "factored_inverse"):
        close(d[key], inverse, 1e-11)
    close((one - h @ psi @ k) @ h @ phi, h @ psi, 1e-13)
    # With phi in the place of psi, as printed, it is no inverse.
    assert np.abs((one - h @ phi @ k) @ f - one).max() > 0.1
    # Unit triangular, block by block: bodies come before what they carry.
    of = c.model.topology.body_of_velocity
    below = of[:, None] >= of
    for factor in (f, w):
        assert np.array_equal(factor[below], one[below])


@pytest.mark.spec("LEM-.7", "OP-PSI")
@pytest.mark.parametrize("name", NAMES)
def test_identities_of_phi_and_psi(name):
    for armature in (True, False):
        c = case(name, armature)
        d = c.dense
        e, h, k, p, phi, psi, psi_t = (d[key] for key in ("E_psi", "H", "K", "P", "phi", "psi", "psi_t"))
        one = np.eye(len(p))
        close(psi @ e, psi_t, 1e-13)
        close(e @ psi, psi_t, 1e-13)
        close(np.linalg.inv(psi) @ phi, one + k @ h @ phi, 1e-12)
        close(phi @ np.linalg.inv(psi), one + phi @ k @ h, 1e-12)
        close(np.linalg.inv(psi), np.linalg.inv(phi) + k @ h, 1e-12)
        # What a rotor holds against its hinge counts as inertia of the parent.
        m = d["M"] + k @ d["armature"] @ k.T
        close(psi @ m @ psi.T, p + psi_t @ p + p @ psi_t.T)
        if not armature:
            close(h @ psi @ d["M"] @ psi.T @ h.T, d["D"])

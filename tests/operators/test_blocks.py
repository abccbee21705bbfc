"""Blocks of any sizes: the same operators and recursions carry flexible and aggregated bodies (Jain, SKO)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trees
from operators.matrices import case, close

from dynax.operators import BlockDiagonal, Blocks, ChildToParent, Identity, Propagation, articulated


def padded(space: Blocks, other: Blocks, parts) -> jax.Array:
    """Blocks of different sizes in one array."""
    out = np.zeros((space.count, space.width, other.width))
    for k, part in enumerate(parts):
        out[k, : part.shape[0], : part.shape[1]] = part
    return jnp.asarray(out)


def on_diagonal(parts) -> np.ndarray:
    rows, columns = (np.cumsum([0, *(p.shape[axis] for p in parts)]) for axis in (0, 1))
    out = np.zeros((rows[-1], columns[-1]))
    for k, part in enumerate(parts):
        out[rows[k] : rows[k + 1], columns[k] : columns[k + 1]] = part
    return out


@pytest.mark.spec("SKO", "OP-E", "OP-PHI", "OP-DGK", "LEM-0.1", "LEM-0.2", "LEM-0.3", "OMEGA", "UPS")
def test_any_sizes(rng):
    """A forest with branches whose nodes have three to nine entries and none to three freedoms."""
    parents = (*trees.random_parents(rng, 9, bases=2), 4, 4)
    parents = tuple(max(p, -1) for p in parents)
    n = len(parents)
    sizes, freedoms = rng.integers(3, 10, n), rng.integers(0, 4, n)
    freedoms[2], freedoms[-1] = 0, 3
    s, r = Blocks(tuple(map(int, sizes))), Blocks(tuple(map(int, freedoms)))
    up = [rng.normal(size=(sizes[max(p, 0)], sizes[k])) * (p >= 0) for k, p in enumerate(parents)]
    roots = [rng.normal(size=(size, size)) for size in sizes]
    hinges = [rng.normal(size=(f, size)) for f, size in zip(freedoms, sizes, strict=True)]
    rotors = [np.diag(rng.uniform(0.1, 1.0, f)) for f in freedoms]
    e = ChildToParent(parents, s, s, padded(s, s, up))
    m = BlockDiagonal(s, s, padded(s, s, [a @ a.T for a in roots]), "positive")
    h = BlockDiagonal(r, s, padded(r, s, hinges))
    rotor = BlockDiagonal(r, r, padded(r, r, rotors), "positive")

    @jax.jit
    def matrices(e, m, h, rotor):
        a = articulated(e, m, h, rotor)
        phi, psi, one = Propagation(e), Propagation(a.E_psi), Identity(h.shape[0])
        f, w = one + h @ phi @ a.K, one - h @ psi @ a.K
        mass = h @ phi @ m @ phi.T @ h.T + rotor
        omega = psi.T @ h.T @ a.D.inv @ h @ psi
        every = {
            "E": e, "M": m, "H": h, "phi": phi, "psi": psi, "F": f, "W": w, "mass": mass, "inverse": mass.inv,
            "D": a.D, "P": a.P, "G": a.G, "K": a.K, "omega": omega, "upsilon": omega.diagonal,
            "R": (phi @ m @ phi.T).diagonal, "phi.T": phi.T, "H.T": h.T,
        }  # fmt: skip
        return {key: x.dense() for key, x in every.items()} | {"block": omega.block(n - 1, n - 2)}

    d = {key: np.asarray(x) for key, x in matrices(e, m, h, rotor).items()}
    ends = np.cumsum([0, *sizes])
    big = np.zeros((ends[-1], ends[-1]))
    for k, p in enumerate(parents):
        if p >= 0:
            big[ends[p] : ends[p + 1], ends[k] : ends[k + 1]] = up[k]
    close(d["E"], big, 1e-14)
    close(d["M"], on_diagonal([a @ a.T for a in roots]), 1e-14)
    close(d["H"], on_diagonal(hinges), 1e-14)
    phi = np.linalg.inv(np.eye(len(big)) - big)
    close(d["phi"], phi, 1e-12)
    close(d["phi.T"], phi.T, 1e-12)
    close(d["H.T"], d["H"].T, 1e-14)
    mass = d["H"] @ phi @ d["M"] @ phi.T @ d["H"].T + on_diagonal(rotors)
    close(d["mass"], mass, 1e-12)
    close(d["inverse"] @ mass, np.eye(len(mass)), 1e-8)
    close(d["F"] @ d["D"] @ d["F"].T, mass, 1e-11)
    close(d["W"] @ d["F"], np.eye(len(mass)), 1e-10)
    close(d["psi"], np.linalg.inv(np.eye(len(big)) - big + d["K"] @ d["H"]), 1e-11)
    close(d["D"], d["H"] @ d["P"] @ d["H"].T + on_diagonal(rotors), 1e-12)
    omega = d["psi"].T @ d["H"].T @ np.linalg.inv(d["D"]) @ d["H"] @ d["psi"]
    close(d["omega"], omega, 1e-11)
    whole = phi @ d["M"] @ phi.T
    for k in range(n):
        own = slice(ends[k], ends[k + 1])
        close(d["upsilon"][own, own], omega[own, own], 1e-11)
        close(d["R"][own, own], whole[own, own], 1e-11)
    close(d["block"], omega[ends[n - 1] : ends[n], ends[n - 2] : ends[n - 1]], 1e-11)


@pytest.mark.spec("SKO")
def test_an_aggregate_of_bodies():
    """Bodies 1, 2 and 4 of a tree as one node of 18 entries and three freedoms: the same system.

    Inside, the aggregate is `phi_S`; it hangs on the tree by `E_S phi_S`, and its hinges are `H_S phi_S`. Its mass, and
    what it gives to its children, stay as they are.
    """
    c = case("arm")
    d, inside, nodes = c.dense, (1, 2, 4), ((0,), (1, 2, 4), (3,), (5,), (6,))
    parents = (-1, 0, 1, 1, 1)  # of the nodes: what body 2 or 4 carries hangs on the aggregate
    assert [c.model.parents[b] for b in (1, 2, 4, 3, 5, 6)] == [0, 1, 1, 2, 4, 4]

    def rows(node):
        return np.concatenate([np.arange(6 * b, 6 * b + 6) for b in node])

    own = rows(inside)
    phi = d["phi"][np.ix_(own, own)]
    s, r = Blocks(tuple(6 * len(node) for node in nodes)), Blocks(tuple(len(node) for node in nodes))
    up, hinges, masses, rotors = [], [], [], []
    for node, parent in zip(nodes, parents, strict=True):
        inner = phi if node == inside else np.eye(6)
        above = rows(nodes[parent]) if parent >= 0 else np.zeros(0, int)
        up.append(d["E_phi"][np.ix_(above, rows(node))] @ inner)
        hinges.append(d["H"][np.ix_(node, rows(node))] @ inner)
        masses.append(d["M"][np.ix_(rows(node), rows(node))])
        rotors.append(d["armature"][np.ix_(node, node)])
    e = ChildToParent(parents, s, s, padded(s, s, up))
    h = BlockDiagonal(r, s, padded(r, s, hinges))
    m = BlockDiagonal(s, s, padded(s, s, masses), "positive")
    rotor = BlockDiagonal(r, r, padded(r, r, rotors), "positive")
    phi = Propagation(e)
    mass = h @ phi @ m @ phi.T @ h.T + rotor
    order = np.concatenate(nodes)
    expected = c.mass[np.ix_(order, order)]
    close(mass.dense(), expected, 1e-12)
    close(mass.inv.dense(), np.linalg.inv(expected), 1e-11)
    # phi* H* is the same, body by body.
    bodies = np.concatenate([rows(node) for node in nodes])
    motions = (phi.T @ h.T).dense()
    plain = (d["phi"].T @ d["H"].T)[np.ix_(bodies, order)]
    close(motions, plain, 1e-12)


def test_inverse_of_blocks(rng):
    space = Blocks((2, 0, 3))
    matrices = [rng.normal(size=(k, k)) + 3 * np.eye(k) for k in space.sizes]
    a = BlockDiagonal(space, space, padded(space, space, matrices))
    close(a.inv.dense(), np.linalg.inv(on_diagonal(matrices)), 1e-13)
    other = Blocks((1, 1, 1))
    with pytest.raises(ValueError, match="not square"):
        BlockDiagonal(space, other, jnp.zeros((3, 3, 1))).solve(jnp.zeros(5))

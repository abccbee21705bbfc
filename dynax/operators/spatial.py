"""The spatial operators of a model at one configuration (Jain, 0.4 to 0.34; tables OP-E to OP-LAM).

    V = phi* H* v        f = phi (M a + b)        tau = H f        mass matrix = H phi M phi* H* + armature
    K = E G    E_psi = E (1 - tau)    psi = (1 - E_psi)^-1    F = 1 + H phi K    W = F^-1 = 1 - H psi K
    mass matrix = F D F*              its inverse = W* D^-1 W          Omega = psi* H* D^-1 H psi

Every block is in its body's own axes about its body's origin, bodies in the order of the model, free roots among them:
`E(p, k)` takes forces from the axes and the origin of body `k` to those of its parent. With armature `D` is
`H P H* + armature`; the factors hold, but `H G = 1` and what follows from it (`tau` a projection, `H P+ = 0`) do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dynax.model import Model
from dynax.model.checks import as_state
from dynax.model.kinds import for_models
from dynax.operators.articulated import articulated
from dynax.operators.blocks import BlockDiagonal, ChildToParent, Propagation
from dynax.operators.model_blocks import force_transform, model_blocks
from dynax.operators.operator import Identity, Operator
from dynax.operators.pickoff import PickOff
from dynax.operators.pytree import pytree_dataclass
from dynax.operators.recursions import compliance, composite, mul, transpose
from dynax.spatial import Transform


@pytree_dataclass("bodies")
class SpatialOperators:
    """The operators of a model at one configuration; made by `spatial_operators`, a pytree.

    For `n` bodies and `nv` freedoms: vectors over bodies are flat, `(6 n,)`, those over freedoms `(nv,)`. Operators
    that are not fields are put together when they are asked for; nothing is applied before its time.
    """

    model: Model
    bodies: tuple[int, ...]
    """The bodies of the model these operators are of: all of them, unless restricted."""
    E_phi: ChildToParent
    """`(6 n, 6 n)`: forces from each body to its parent."""
    H: BlockDiagonal
    """`(nv, 6 n)`: `H.T` are the motion columns of the joints."""
    M: BlockDiagonal
    """`(6 n, 6 n)`: the inertias of the bodies."""
    armature: BlockDiagonal
    """`(nv, nv)`: rotor inertias."""
    R: BlockDiagonal
    """`(6 n, 6 n)`: composite inertias."""
    P: BlockDiagonal
    """`(6 n, 6 n)`: articulated inertias."""
    P_plus: BlockDiagonal
    """`(6 n, 6 n)`: what is left of them across the joint, `P - G D G*`."""
    D: BlockDiagonal
    """`(nv, nv)`: `H P H* + armature`; `D.inv` is its inverse."""
    G: BlockDiagonal
    """`(6 n, nv)`: Kalman gains, `P H* D^-1`."""
    K: ChildToParent
    """`(6 n, nv)`: gains at the parents, `E G`."""
    E_psi: ChildToParent
    """`(6 n, 6 n)`: `E (1 - G H)`."""
    Upsilon: BlockDiagonal
    """`(6 n, 6 n)`: compliances of the bodies, the blocks on the diagonal of `Omega`."""

    @property
    def I(self) -> Identity:  # noqa: E743
        """The identity over freedoms, `(nv, nv)`, as in `F = I + H @ phi @ K`."""
        return Identity(self.H.shape[0], self.H.blocks.dtype)

    @property
    def I_bodies(self) -> Identity:
        """The identity over bodies, `(6 n, 6 n)`, as in `phi = (I_bodies - E_phi).inv`."""
        return Identity(self.H.shape[1], self.H.blocks.dtype)

    @property
    def phi(self) -> Propagation:
        """`(6 n, 6 n)`: forces from each body to all that carry it; `phi.T` takes motions outward."""
        return Propagation(self.E_phi)

    @property
    def phi_t(self) -> Operator:
        """`phi - 1`."""
        return self.E_phi @ self.phi

    @property
    def psi(self) -> Propagation:
        """`(6 n, 6 n)`: forces from each body to all that carry it, through joints that give way."""
        return Propagation(self.E_psi)

    @property
    def psi_t(self) -> Operator:
        """`psi - 1`."""
        return self.E_psi @ self.psi

    @property
    def tau(self) -> BlockDiagonal:
        """`(6 n, 6 n)`: `G H`, a projection where there is no armature."""
        return BlockDiagonal(self.P.rows, self.P.rows, mul(self.G.blocks, self.H.blocks))

    @property
    def tau_bar(self) -> BlockDiagonal:
        """`1 - tau`."""
        one = jnp.eye(self.P.rows.width, dtype=self.P.dtype) * self.P.rows.mask[:, None]
        return BlockDiagonal(self.P.rows, self.P.rows, one - self.tau.blocks)

    @property
    def F(self) -> Operator:
        """`(nv, nv)`: the innovations factor `1 + H phi K`, unit triangular from block to block."""
        return self.I + self.H @ self.phi @ self.K

    @property
    def W(self) -> Operator:
        """`(nv, nv)`: its inverse `1 - H psi K`."""
        return self.I - self.H @ self.psi @ self.K

    @property
    def mass_matrix(self) -> Operator:
        """`(nv, nv)`: `H phi M phi* H* + armature`; `.solve` and `.inv` factor it."""
        return self.H @ self.phi @ self.M @ self.phi.T @ self.H.T + self.armature

    @property
    def inverse_mass_matrix(self) -> Operator:
        """`(nv, nv)`: `W* D^-1 W`, two sweeps."""
        return self.W.T @ self.D.inv @ self.W

    @property
    def Omega(self) -> Operator:
        """`(6 n, 6 n)`: `psi* H* D^-1 H psi`, the accelerations of bodies that forces on bodies cause."""
        return self.psi.T @ self.H.T @ self.D.inv @ self.H @ self.psi

    def B(self, *frames: str) -> PickOff:
        """`(6 n, 6 m)`: forces at `m` bodies or named frames, in their axes about their origins, to the bodies.

        Columns of frames fixed to the world are zero. `KeyError`, with near names, for an unknown one; `ValueError` for
        one on a body these operators are not restricted to.
        """
        if not frames:
            raise ValueError("B, J and Lambda need at least one name of a body or frame")
        place = {body: k for k, body in enumerate(self.bodies)}
        nodes, poses = [], []
        for name in frames:
            body, pose = self.model.locate(name)
            if body >= 0 and body not in place:
                raise ValueError(f"{name!r} is on {self.model.body_names[body]!r}, which these operators leave out")
            nodes.append(place.get(body, -1))
            poses.append(Transform.identity() if pose is None else pose)
        dtype = self.H.blocks.dtype
        rotation = jnp.stack([jnp.asarray(pose.rotation, dtype) for pose in poses])
        translation = jnp.stack([jnp.asarray(pose.translation, dtype) for pose in poses])
        return PickOff(self.P.rows, tuple(nodes), force_transform(rotation, translation))

    def J(self, *frames: str) -> Operator:
        """`(6 m, nv)`: the Jacobians of bodies or named frames, in their own axes about their own origins."""
        return self.B(*frames).T @ self.phi.T @ self.H.T

    def Lambda(self, *frames: str) -> Operator:
        """`(6 m, 6 m)`: `J M^-1 J*`, the accelerations of frames that forces on frames cause. `.dense()` is O(n).

        (Its inverse is the operational-space inertia.)
        """
        b = self.B(*frames)
        return b.T @ self.Omega @ b

    def restrict(self, bodies: Sequence[int | str]) -> SpatialOperators:
        """The operators of some of the bodies, in model order: all fields, `phi`, `psi`, `F`, `W` become sub-blocks.

        So `phi` and `mass_matrix` are those of the sub-graph by itself, while `R`, `P`, `D`, `G`, `psi` hold what its
        bodies carry outside it and `Upsilon` what they hang on: `inverse_mass_matrix` and `Omega` belong to
        `mass_matrix` where the set holds all that its bodies carry.

        **Arguments:** `bodies`: names, or rows of the model. Of two bodies that carry one another, all between them
        must be there too (a path-induced set), `ValueError` otherwise.
        """
        names = self.model.body_names
        wanted = {self.model.body_index(b) if isinstance(b, str) else int(b) for b in bodies}
        for body in sorted(wanted):
            if body not in self.bodies:
                raise ValueError(f"restrict: body {body} is not among the bodies of these operators, {self.bodies}")
        self._check_paths(wanted, names)
        nodes = tuple(k for k, body in enumerate(self.bodies) if body in wanted)
        parts = {f.name: getattr(self, f.name) for f in fields(self)}  # pyright: ignore[reportArgumentType]
        parts = {name: x.take(nodes) for name, x in parts.items() if isinstance(x, BlockDiagonal | ChildToParent)}
        return replace(self, bodies=tuple(self.bodies[k] for k in nodes), **parts)  # pyright: ignore

    def __repr__(self) -> str:
        return f"SpatialOperators({len(self.bodies)} bodies, nv={self.H.shape[0]})"

    def _check_paths(self, wanted: set[int], names: tuple[str, ...]) -> None:
        parents = self.model.parents
        for body in sorted(wanted):
            gap, above = [], parents[body]
            while above >= 0 and above not in wanted:
                gap.append(above)
                above = parents[above]
            if gap and above >= 0:
                missing = ", ".join(repr(names[k]) for k in gap)
                raise ValueError(
                    f"restrict: {names[body]!r} and {names[above]!r} are wanted without {missing} between them; "
                    "add these, so that what passes between two bodies stays inside"
                )


@jax.jit
def _spatial_operators(model: Model, q: jax.Array) -> SpatialOperators:
    own = model_blocks(model, q)
    e, h, six = own.E_phi, own.H, own.M.rows
    a = articulated(e, own.M, h, own.armature)
    give = mul(mul(transpose(h.blocks), a.D.inv.blocks), h.blocks)
    r, y = composite(e.parents, e.blocks, own.M.blocks), compliance(e.parents, a.E_psi.blocks, give)
    return SpatialOperators(
        model,
        tuple(range(model.num_bodies)),
        R=BlockDiagonal(six, six, r, "positive"),
        Upsilon=BlockDiagonal(six, six, y, "positive"),
        **own._asdict(),
        **a._asdict(),
    )


@for_models
def spatial_operators(model: Model, q: ArrayLike) -> SpatialOperators:
    """The operators of the Spatial Operator Algebra at a configuration, matrix-free, O(n).

    **Arguments:** `q`: configuration, shape `(nq,)`.

    Products and sums of them are operators again, and the known ones are put in their place (see
    `dynax.operators.patterns`): `(ops.H @ ops.phi @ ops.M @ ops.phi.T @ ops.H.T + ops.armature).solve(tau)` factors the
    mass matrix and never forms it.
    """
    return _spatial_operators(model, *as_state(model, q=q))

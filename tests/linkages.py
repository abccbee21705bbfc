"""Bodies and joints of any connectivity at one instant, in NumPy, all in world axes about the world's origin.

The equations of the whole system (Featherstone 2008, section 3.7), and those of a spanning tree with its loops closed
(eq. 8.36): oracles that share nothing with the recursions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from dense import Dense, crf, crm, motion_transform, skew


def complement(columns):
    """An orthonormal basis of what the columns do not reach."""
    return np.linalg.svd(columns, full_matrices=True)[0][:, columns.shape[1] :]


def mcI(mass, com, inertia):
    """The 6x6 inertia about the origin."""
    c = skew(com)
    return np.block([[inertia + mass * c @ c.T, mass * c], [mass * c.T, mass * np.eye(3)]])


def pin(axis, point):
    """The motion column of a hinge."""
    return np.concatenate([axis, np.cross(point, axis)])[:, None]


class Joint(NamedTuple):
    """A joint between two bodies (-1 for the ground): `a_s - a_p = S qdd + c`, `f_s = T_a tau + T lambda`."""

    predecessor: int
    successor: int
    s: np.ndarray
    c: np.ndarray
    tau: np.ndarray

    @property
    def t(self):
        return complement(self.s)

    @property
    def t_a(self):
        return self.s @ np.linalg.inv(self.s.T @ self.s)


class Linkage(NamedTuple):
    inertia: np.ndarray
    """`(n, 6, 6)`."""
    bias: np.ndarray
    """`v x* I v` less the forces from outside, gravity among them, `(n, 6)`."""
    joints: list[Joint]

    @property
    def incidence(self):
        """`P`: 1 where a body is a joint's successor, -1 where it is its predecessor, the ground left out."""
        return incidence(len(self.inertia), [(joint.predecessor, joint.successor) for joint in self.joints])

    def whole_system(self):
        """Accelerations of all bodies, and of the joints, from all bodies and constraint forces at once (eq. 3.74).

        Where constraints repeat each other, of the many sets of constraint forces the smallest.
        """
        p, n = self.incidence, 6 * len(self.inertia)
        t, t_a = blocks([j.t for j in self.joints]), blocks([j.t_a for j in self.joints])
        c, tau = (np.concatenate([getattr(j, name) for j in self.joints]) for name in ("c", "tau"))
        pt = p @ t
        system = np.block([[blocks(self.inertia), pt], [pt.T, np.zeros((pt.shape[1],) * 2)]])
        rhs = np.concatenate([p @ t_a @ tau - self.bias.reshape(-1), t.T @ c])
        scale = np.concatenate([np.ones(n), np.full(pt.shape[1], np.abs(self.inertia).max())])  # of comparable units
        x = np.linalg.lstsq(system * scale, rhs, rcond=1e-11)[0] * scale
        a = x[:n]
        return a.reshape(-1, 6), t_a.T @ (p.T @ a - c), np.linalg.matrix_rank(pt, tol=1e-9)

    def closed(self, loops):
        """The same by a spanning tree: `[H K'; K 0][qdd; -lambda] = [tau - C; k]`, `loops` the joints not in it."""
        n = len(self.inertia)
        tree = [joint for k, joint in enumerate(self.joints) if k not in loops]
        nv = sum(joint.s.shape[1] for joint in tree)
        jacobian, drift, at = np.zeros((n + 1, 6, nv)), np.zeros((n + 1, 6)), 0  # the last row is the ground's
        for joint in tree:  # parents first
            body, parent, k = joint.successor, joint.predecessor, joint.s.shape[1]
            jacobian[body], drift[body] = jacobian[parent], drift[parent] + joint.c
            jacobian[body][:, at : at + k] = joint.s
            at += k
        j = jacobian[:n].reshape(6 * n, nv)
        inertia = blocks(self.inertia)
        h = j.T @ inertia @ j
        rest = np.concatenate([joint.tau for joint in tree]) - j.T @ (
            inertia @ drift[:n].reshape(-1) + self.bias.reshape(-1)
        )
        rows, right = [np.zeros((0, nv))], [np.zeros(0)]
        for loop in (self.joints[k] for k in loops):
            t, s, p = loop.t, loop.successor, loop.predecessor
            rest = rest + (jacobian[s] - jacobian[p]).T @ loop.t_a @ loop.tau
            rows.append(t.T @ (jacobian[s] - jacobian[p]))
            right.append(t.T @ (loop.c - drift[s] + drift[p]))
        return Closed(h, np.concatenate(rows), rest, np.concatenate(right), jacobian[:n], drift[:n])


class Closed(NamedTuple):
    """`H`, `K`, `tau - C`, `k`, and Jacobians and drifts of the bodies."""

    h: np.ndarray
    k: np.ndarray
    rest: np.ndarray
    right: np.ndarray
    jacobian: np.ndarray
    drift: np.ndarray

    @property
    def compliance(self):
        """`qdd` for joint forces, constraints kept: `H^-1 - H^-1 K' (K H^-1 K')^+ K H^-1`."""
        inverse = np.linalg.inv(self.h)
        return (
            inverse - inverse @ self.k.T @ np.linalg.pinv(self.k @ inverse @ self.k.T, rcond=1e-10) @ self.k @ inverse
        )

    @property
    def qdd(self):
        inverse = np.linalg.inv(self.h)
        a = self.k @ inverse @ self.k.T
        push = np.linalg.pinv(a, rcond=1e-10) @ (self.right - self.k @ inverse @ self.rest)
        return inverse @ (self.rest + self.k.T @ push)

    @property
    def accelerations(self):
        return self.jacobian @ self.qdd + self.drift


def incidence(bodies, edges):
    p = np.zeros((6 * bodies, 6 * len(edges)))
    for k, (predecessor, successor) in enumerate(edges):
        for body, sign in ((predecessor, -1.0), (successor, 1.0)):
            if body >= 0:
                p[6 * body : 6 * body + 6, 6 * k : 6 * k + 6] = sign * np.eye(6)
    return p


def blocks(matrices):
    """Block diagonal, of blocks that may be rectangular or empty."""
    shape = np.sum([m.shape for m in matrices], axis=0)
    result, row, column = np.zeros(shape), 0, 0
    for m in matrices:
        result[row : row + m.shape[0], column : column + m.shape[1]] = m
        row, column = row + m.shape[0], column + m.shape[1]
    return result


def of_model(model, q, v, tau, external) -> Linkage:
    """A tree of rigid bodies at one state: joint forces `tau` as they are, without armature and passive forces."""
    dense = Dense(model, q[None], v[None])
    inertia, bias, joints, transforms = [], [], [], []
    gravity = np.concatenate([np.zeros(3), np.asarray(model.gravity)])
    for body, parent in enumerate(model.parents):
        rows = slice(6 * body, 6 * body + 6)
        rotation, position = dense.rotation[0, body], dense.position[0, body]
        to_body = motion_transform(rotation, position)  # of motions, from the world's origin
        to_world = np.linalg.inv(to_body)
        transforms.append(to_world)
        own, velocity = dense.inertia[rows, rows], dense.velocity[0, body]
        inertia.append(to_body.T @ own @ to_body)
        outside = to_body.T @ np.asarray(external[body])
        bias.append(to_body.T @ (crf(velocity) @ own @ velocity) - outside - inertia[-1] @ gravity)
        mine = slice(model.topology.v_start[body], model.topology.v_start[body + 1])
        c = to_world @ dense.product[0, body]
        joints.append(Joint(parent, body, to_world @ dense.columns[body][0], c, np.asarray(tau)[mine]))
    return Linkage(np.array(inertia), np.array(bias), joints)


def four_bar(rng, *, loosened: bool = False) -> Linkage:
    """A crank, a coupler and a rocker in the plane across z, in motion, with a motor at the crank.

    Joints: ground to crank, crank to coupler, ground to rocker, coupler to rocker. The last closes the loop; as a pin
    it repeats three constraints, `loosened` it is a ball in a slot along z and repeats none.
    """
    z = np.array([0.0, 0.0, 1.0])
    a, b, c, d = (np.array([*p, 0.0]) for p in ((0, 0), (0.3, 0.8), (1.4, 1.1), (1.7, -0.2)))
    edges = [(-1, 0), (0, 1), (-1, 2), (1, 2)]
    hinges = [pin(z, point) for point in (a, b, d, c)]
    # The crank turns; the others follow, so that the point at which the loop closes has one velocity.
    rates = np.array([1.3, 0.0, 0.0])

    def at(point, hinge):
        return (hinge[3:, 0] + np.cross(hinge[:3, 0], point))[:2]

    rates[1:] = np.linalg.solve(np.stack([at(c, hinges[1]), -at(c, hinges[2])], 1), -at(c, hinges[0]) * rates[0])
    velocity = [
        hinges[0][:, 0] * rates[0],
        hinges[0][:, 0] * rates[0] + hinges[1][:, 0] * rates[1],
        hinges[2][:, 0] * rates[2],
    ]
    closing = velocity[2] - velocity[1]
    rates = np.append(rates, closing[2])
    inertia, bias = [], []
    gravity = np.array([0.0, 0.0, 0.0, 0.4, -9.81, 0.0])
    for body, (one, two) in enumerate(((a, b), (b, c), (d, c))):
        own = mcI(
            rng.uniform(0.5, 2.0), 0.5 * (one + two) + 0.1 * rng.normal(size=3), np.diag(rng.uniform(0.1, 0.3, 3))
        )
        inertia.append(own)
        bias.append(crf(velocity[body]) @ own @ velocity[body] - own @ gravity)
    joints = []
    for (p, s), hinge, rate in zip(edges, hinges, rates, strict=True):
        carrier = np.zeros(6) if p < 0 else velocity[p]
        change = crm(carrier) @ hinge[:, 0] * rate
        joints.append(Joint(p, s, hinge, change, np.array([2.5 if s == 0 else 0.0])))
    if loosened:
        # Turns about three axes through the point and a slide along z: at z = 0 the bias stays that of the pin.
        free = np.concatenate([*(pin(axis, c) for axis in np.eye(3)), np.eye(6)[:, 5:]], axis=1)
        joints[3] = joints[3]._replace(s=free, tau=np.zeros(4))
    return Linkage(np.array(inertia), np.array(bias), joints)

"""The textbook in dense matrices and NumPy: an oracle for trees that shares only the joints' own functions with dynax.

Everything is stacked over the bodies, in their own axes about their own origins, with a leading axis of states:

    V = phi* (S v + sigma)      A = phi* (S a + c + V x v_J + a_0)      f = phi (I A + V x* I V - f_ext)      tau = S* f

with `phi* = (1 - E)^-1` and `E` the transform from each parent (Jain, 0.4 to 0.7; Featherstone 2008, chapters 3 and 5).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import dynax as dx


def skew(a):
    """`a x`, over leading axes."""
    x, y, z = np.moveaxis(np.asarray(a), -1, 0)
    o = np.zeros_like(x)
    return np.stack([np.stack([o, -z, y], -1), np.stack([z, o, -x], -1), np.stack([-y, x, o], -1)], -2)


def block(a, b, c, d):
    """`[[a, b], [c, d]]` of 3x3 blocks, over leading axes."""
    return np.concatenate([np.concatenate([a, b], -1), np.concatenate([c, d], -1)], -2)


def crm(v):
    """`v x` on motions."""
    w, u = skew(v[..., :3]), skew(v[..., 3:])
    return block(w, np.zeros_like(w), u, w)


def crf(v):
    """`v x*` on forces."""
    return -np.swapaxes(crm(v), -1, -2)


def motion_transform(rotation, translation):
    """Motions into a frame that stands at `(rotation, translation)` in the present one."""
    e = np.swapaxes(rotation, -1, -2)
    return block(e, np.zeros_like(e), -e @ skew(translation), e)


def inertia_matrix(mass, com, six, first_moment=(0.0, 0.0, 0.0)):
    """The 6x6 inertia about the origin, from that about `com` and the first moment left there."""
    xx, yy, zz, xy, yz, xz = six
    c, h = skew(com), skew(first_moment)
    about_com = block(np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]), h, h.T, mass * np.eye(3))
    to_com = block(np.eye(3), np.zeros((3, 3)), c.T, np.eye(3))
    return to_com.T @ about_com @ to_com


def mul(matrix, vector):
    return np.einsum("...ij,...j->...i", matrix, vector)


class Dense:
    """All matrices of `model` at states `q (b, nq)` and `v (b, nv)`."""

    def __init__(self, model: dx.Model, q, v):
        self.model = model
        t, b, n = model.topology, len(q), model.num_bodies
        self.batch, self.n, self.nv = b, n, model.nv
        q, v = jnp.asarray(q), jnp.asarray(v)
        self.columns, self.sigma_and_rates, self.bias = [], np.zeros((b, n, 6)), np.zeros((b, n, 6))
        self.rotation, self.position = np.zeros((b, n, 3, 3)), np.zeros((b, n, 3))
        self.transform = np.zeros((b, n, 6, 6))
        for i, joint in enumerate(t.joints):
            own = [model.joint_parameters[k] for k in range(t.parameter_start[i], t.parameter_start[i + 1])]
            motion = joint.motion(
                tuple(q[:, k] for k in range(t.q_start[i], t.q_start[i + 1])),
                tuple(v[:, k] for k in range(t.v_start[i], t.v_start[i + 1])),
                tuple(own),
                jnp.full(b, model.time),
            )

            def full(tree, b=b):
                return np.moveaxis(np.stack([np.broadcast_to(np.asarray(x), b) for x in jax.tree.leaves(tree)]), 0, -1)

            turn, slide = full(motion.rotation).reshape(b, 3, 3), full(motion.translation)
            hinge = np.asarray(model.hinges.rotation[i]), np.asarray(model.hinges.translation[i])
            placed = np.asarray(model.placements.rotation[i]), np.asarray(model.placements.translation[i])
            # placement . hinge . joint . hinge^-1
            rotation = placed[0] @ hinge[0] @ turn @ hinge[0].T
            middle = hinge[1] + mul(hinge[0], slide)
            translation = placed[1] + mul(placed[0], middle) - mul(rotation, hinge[1])
            to_body = motion_transform(hinge[0].T, -hinge[0].T @ hinge[1])
            self.columns.append(
                np.stack([mul(to_body, full(c)) for c in motion.columns], -1) if joint.nv else np.zeros((b, 6, 0))
            )
            self.sigma_and_rates[:, i] = mul(to_body, full(motion.velocity))
            if motion.bias is not None:
                self.bias[:, i] = mul(to_body, full(motion.bias))
            self.transform[:, i] = motion_transform(rotation, translation)
            p = model.parents[i]
            above = (np.eye(3), np.zeros(3)) if p < 0 else (self.rotation[:, p], self.position[:, p])
            self.rotation[:, i] = above[0] @ rotation
            self.position[:, i] = above[1] + mul(above[0], translation)
        self.e = np.zeros((b, 6 * n, 6 * n))
        self.s = np.zeros((b, 6 * n, self.nv))
        self.inertia = np.zeros((6 * n, 6 * n))
        for i, p in enumerate(model.parents):
            rows = slice(6 * i, 6 * i + 6)
            if p >= 0:
                self.e[:, rows, 6 * p : 6 * p + 6] = self.transform[:, i]
            self.s[:, rows, t.v_start[i] : t.v_start[i + 1]] = self.columns[i]
            numbers = (np.asarray(x[i]) for x in (model.mass, model.com, model.inertia, model.first_moment))
            self.inertia[rows, rows] = inertia_matrix(*numbers)
        self.phi_t = np.linalg.inv(np.eye(6 * n) - self.e)
        self.phi = np.swapaxes(self.phi_t, -1, -2)
        self.jacobians = self.phi_t @ self.s
        self.velocity = self.stack(mul(self.phi_t, self.flat(self.sigma_and_rates)))

    def flat(self, x):
        return x.reshape(self.batch, 6 * self.n)

    def stack(self, x):
        return x.reshape(self.batch, self.n, 6)

    @property
    def base(self):
        """`-g` handed to the bodies that hang on the world."""
        lift = np.concatenate([np.zeros(3), -np.asarray(self.model.gravity)])
        own = np.zeros((self.batch, self.n, 6))
        for i in self.model.topology.roots:
            own[:, i] = self.transform[:, i] @ lift
        return own

    @property
    def product(self):
        """`c + v x v_J` of each joint: the accelerations of joints that do not accelerate."""
        return self.bias + mul(crm(self.velocity), self.sigma_and_rates)

    def acceleration(self, a, *, gravity: bool):
        own = self.flat(self.product + (self.base if gravity else 0.0)) + mul(self.s, np.asarray(a))
        return self.stack(mul(self.phi_t, own))

    def net(self, a, external):
        momentum = self.stack(mul(self.inertia, self.flat(self.velocity)))
        inertial = self.stack(mul(self.inertia, self.flat(self.acceleration(a, gravity=True))))
        return inertial + mul(crf(self.velocity), momentum) - np.asarray(external)

    def joint_forces(self, a, external):
        return self.stack(mul(self.phi, self.flat(self.net(a, external))))

    def tau(self, a, external):
        """Of the rigid bodies alone: no armature, damping, friction or springs."""
        return mul(np.swapaxes(self.s, -1, -2), self.flat(self.joint_forces(a, external)))

    @property
    def mass_matrix(self):
        """`H phi M phi* H*`, without armature."""
        return np.swapaxes(self.jacobians, -1, -2) @ self.inertia @ self.jacobians

    def articulated(self, armature):
        """`P` of every body by block elimination, and `P+` handed to the parent (in the body's own axes)."""
        p = np.zeros((self.batch, self.n, 6, 6))
        plus = np.zeros_like(p)
        for i in reversed(range(self.n)):
            rows = slice(6 * i, 6 * i + 6)
            p[:, i] += self.inertia[rows, rows]
            s = self.columns[i]
            start = self.model.topology.v_start[i]
            d = np.swapaxes(s, -1, -2) @ p[:, i] @ s + np.diag(np.asarray(armature)[start : start + s.shape[-1]])
            u = p[:, i] @ s
            plus[:, i] = p[:, i] - u @ np.linalg.solve(d, np.swapaxes(u, -1, -2)) if s.shape[-1] else p[:, i]
            parent, x = self.model.parents[i], self.transform[:, i]
            if parent >= 0:
                p[:, parent] += np.swapaxes(x, -1, -2) @ plus[:, i] @ x
        return p, plus

    def whole_system(self, tau, external):
        """Accelerations by the system of all bodies and constraint forces at once (eq. 3.74): no armature."""
        results = []
        for k in range(self.batch):
            complement = np.zeros((6 * self.n, 6 * self.n - self.nv))
            active, at = np.zeros((6 * self.n, self.nv)), 0
            for i, columns in enumerate(self.columns):
                s = columns[k]
                kernel = np.linalg.svd(s, full_matrices=True)[0][:, s.shape[1] :]
                complement[6 * i : 6 * i + 6, at : at + kernel.shape[1]] = kernel
                start = self.model.topology.v_start[i]
                active[6 * i : 6 * i + 6, start : start + s.shape[1]] = s @ np.linalg.inv(s.T @ s)
                at += kernel.shape[1]
            incidence = (np.eye(6 * self.n) - self.e[k]).T
            momentum = self.stack(mul(self.inertia, self.flat(self.velocity)))
            p = (mul(crf(self.velocity), momentum) - np.asarray(external))[k].reshape(-1)
            rhs = (self.product + self.base)[k].reshape(-1)
            t = incidence @ complement
            zero = np.zeros((t.shape[1], t.shape[1]))
            system = np.block([[self.inertia, t], [t.T, zero]])
            force = incidence @ active @ np.asarray(tau)[k] - p
            a = np.linalg.solve(system, np.concatenate([force, complement.T @ rhs]))[: 6 * self.n]
            results.append(active.T @ (incidence.T @ a - rhs))
        return np.array(results)

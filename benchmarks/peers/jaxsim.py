"""JaxSim, in an environment of its own. Reading a URDF it calls a program of Gazebo's, so that it is given an SDF."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jaxsim.api as js
import numpy as np
from jaxsim import VelRepr

from benchmarks.bodies import FREE, PRISMATIC, REVOLUTE, SPHERICAL, Bodies, numbers, roll_pitch_yaw
from benchmarks.peers.jax_peer import Arrays, Function, JaxPeer, Unsupported


class Peer(JaxPeer):
    engine = "jaxsim"

    def __init__(self) -> None:
        self._model: Any = None
        self._order = np.zeros(0, int)

    def model(self, bodies: Bodies) -> Any:
        if SPHERICAL in bodies.kinds:
            raise Unsupported("no spherical joints")
        self._model = js.model.JaxSimModel.build_from_model_description(sdf(bodies), is_urdf=False)
        moving = [name for name, kind in zip(bodies.joints, bodies.kinds, strict=True) if kind != FREE]
        self._order = np.array([moving.index(name) for name in self._model.joint_names()])
        return self._model

    def to(self, bodies: Bodies, arrays: Arrays) -> Arrays:
        """The base first; its velocity, acceleration and force linear part first; joints in its order."""
        q, v, x = arrays
        if not bodies.free:
            return q[:, self._order], v[:, self._order], x[:, self._order]
        rows = self._rows(True)
        return np.concatenate([q[:, :7], q[:, 7 + self._order]], axis=1), v[:, rows], x[:, rows]

    def back(self, what: str, bodies: Bodies, answer: Any) -> Any:
        back = np.argsort(self._rows(bodies.free))
        match what:
            case "mass":
                return answer[:, back][:, :, back]
            case "jac":
                return np.roll(answer, 3, axis=1)[:, :, back]
            case "dfd":
                return tuple(x[:, back][:, :, back] for x in answer)
            case "vjp":
                return tuple(x[:, back] for x in answer)
        return answer[:, back]

    def _rows(self, free: bool) -> np.ndarray:
        """Our entry of each of its velocities."""
        return np.concatenate([[3, 4, 5, 0, 1, 2], 6 + self._order]) if free else self._order

    def function(self, what: str, bodies: Bodies) -> Function:
        free = bodies.free

        def data_of(model: Any, q: jax.Array, v: jax.Array) -> Any:
            base = {
                "base_position": q[:3], "base_quaternion": q[3:7],
                "base_linear_velocity": v[:3], "base_angular_velocity": v[3:6],
            } if free else {}  # fmt: skip
            return js.data.JaxSimModelData.build(
                model=model,
                joint_positions=q[7:] if free else q,
                joint_velocities=v[6:] if free else v,
                velocity_representation=VelRepr.Body,
                **base,
            )

        def joined(base: jax.Array, joints: jax.Array) -> jax.Array:
            return jnp.concatenate([base, joints]) if free else joints

        def forward(model: Any, q: jax.Array, v: jax.Array, tau: jax.Array) -> jax.Array:
            """A force on the base is a force on its link."""
            forces, links = tau[6:] if free else tau, None
            if free:
                links = jnp.zeros((model.number_of_links(), 6)).at[0].set(tau[:6])
            return joined(
                *js.model.forward_dynamics_aba(model, data_of(model, q, v), joint_forces=forces, link_forces=links)
            )

        def inverse(model: Any, q: jax.Array, v: jax.Array, a: jax.Array) -> jax.Array:
            data = data_of(model, q, v)
            given = {"base_acceleration": a[:6]} if free else {}
            joints = a[6:] if free else a
            return joined(*js.model.inverse_dynamics(model, data, joint_accelerations=joints, **given))

        def mass(model: Any, q: jax.Array, v: jax.Array, x: jax.Array) -> jax.Array:
            full = js.model.free_floating_mass_matrix(model, data_of(model, q, v))
            return full if free else full[6:, 6:]

        tip = js.link.name_to_idx(self._model, link_name=bodies.names[bodies.tip])

        def jacobian(model: Any, q: jax.Array, v: jax.Array, x: jax.Array) -> jax.Array:
            full = js.link.jacobian(model, data_of(model, q, v), link_index=tip)
            return full if free else full[:, 6:]

        return {"fd": forward, "id": inverse, "mass": mass, "jac": jacobian}[what]


def sdf(bodies: Bodies) -> str:
    """Links by their pose in the model, joints in the frame of their child."""
    rotations, origins = bodies.world_poses()
    lines = ['<sdf version="1.10">', f'<model name="{bodies.name}">']
    if not bodies.free:
        unit = "<ixx>1</ixx><iyy>1</iyy><izz>1</izz>"
        lines += [
            f'<link name="base"><inertial><mass>1</mass><inertia>{unit}</inertia></inertial></link>',
            '<joint name="fixed_base" type="fixed"><parent>world</parent><child>base</child></joint>',
        ]
    for k, kind in enumerate(bodies.kinds):
        i, name = bodies.inertia[k], bodies.names[k]
        lines.append(
            f'<link name="{name}"><pose>{numbers(origins[k])} {roll_pitch_yaw(rotations[k])}</pose><inertial>'
            f"<pose>{numbers(bodies.com[k])} 0 0 0</pose><mass>{bodies.mass[k]}</mass><inertia>"
            f"<ixx>{i[0, 0]}</ixx><iyy>{i[1, 1]}</iyy><izz>{i[2, 2]}</izz>"
            f"<ixy>{i[0, 1]}</ixy><iyz>{i[1, 2]}</iyz><ixz>{i[0, 2]}</ixz></inertia></inertial></link>"
        )
        if kind in (REVOLUTE, PRISMATIC):
            parent = bodies.names[bodies.parents[k]] if bodies.parents[k] >= 0 else "base"
            lines.append(
                f'<joint name="{bodies.joints[k]}" type="{kind}"><parent>{parent}</parent><child>{name}</child>'
                f"<axis><xyz>{numbers(bodies.axes[k])}</xyz><limit/></axis></joint>"
            )
    return "\n".join([*lines, "</model></sdf>"])

"""One fixed piece of work that every process can do, so that their numbers can be compared."""

from __future__ import annotations

import numpy as np
import pinocchio as pin

from benchmarks.timing import Contender, timed


def reference() -> Contender:
    """Forward dynamics of Pinocchio's sample manipulator."""
    model = pin.buildSampleModelManipulator()
    data, q, zeros = model.createData(), pin.neutral(model), np.zeros(model.nv)
    return Contender("pinocchio", "aba of its sample arm", timed(lambda: pin.aba(model, data, q, zeros, zeros)))

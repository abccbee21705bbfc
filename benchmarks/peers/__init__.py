"""One module per peer: the same quantity of the same robot, as that engine's users would compute it."""

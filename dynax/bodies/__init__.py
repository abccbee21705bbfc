"""The kinds of node that a tree is made of, all through one contract (`dynax.tree.nodes`).

| kind | freedoms | ports |
|---|---|---|
| `hinge` | one, a screw along its own z or any motion column | one |
| `node` | any number: loops embedded in the tree, and what else has an inertia between its freedoms | any number |
| `base` | the six of a free root, closed by one 6x6 solution | - |
"""

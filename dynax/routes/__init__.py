"""Ways to the acceleration: the public door, and routes other than the recursion over bodies."""

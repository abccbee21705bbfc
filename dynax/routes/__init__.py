"""Ways to the acceleration: the public door, and routes other than the recursion over bodies; floating bases apart
from their joints."""

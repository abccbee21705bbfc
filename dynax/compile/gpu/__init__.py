"""An algorithm as one kernel on a GPU: a thread computes one sample, its numbers in registers."""

"""How programs run, no dynamics: the batch-last primitive, tiles, one kernel, fences."""

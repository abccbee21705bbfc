"""Algorithms, one per file; none knows a joint type or walks a tree by itself."""

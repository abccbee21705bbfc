"""dynax beside its peers: `python -m benchmarks` measures, `python -m benchmarks.report` writes `docs/benchmarks.md`.

Nothing is imported here: peers with an environment of their own run parts of this package where dynax is not installed.
"""

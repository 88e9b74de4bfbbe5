"""Benchmarks beside the package: each module is a script, `python -m benchmarks.engine --help`. Not in the wheel."""

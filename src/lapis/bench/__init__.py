"""Benchmarks. Each checks the answers before it measures their time."""

"""Benchmarks that check an answer before they time it."""

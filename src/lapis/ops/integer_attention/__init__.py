"""Attention in integers: fixed-point affinities, integer sums."""

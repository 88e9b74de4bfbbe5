"""Affinities A = exp(-D / tau), and their rows scaled to a mass of one: exactly, or by the nearest power of two."""

from lapis.ops.arrays import of_arrays_or_tensors
from lapis.ops.row_scale import reference

scale_rows = of_arrays_or_tensors(reference.scale_rows, "eager")
affinity = of_arrays_or_tensors(reference.affinity, "eager")

"""Laplacian attention in integers: tables of fixed-point affinities, integer row sums, integer value sums."""

from lapis.ops.arrays import of_arrays_or_tensors
from lapis.ops.integer_attention import reference

integer_attention = of_arrays_or_tensors(reference.integer_attention, "eager")

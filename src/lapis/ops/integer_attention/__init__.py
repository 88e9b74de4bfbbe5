"""Laplacian attention in integers: tables of fixed-point affinities, integer row sums, integer value sums."""

from types import ModuleType

from lapis.ops.arrays import of_arrays_or_tensors
from lapis.ops.integer_attention import reference


def _of_tensors() -> ModuleType:
    from lapis.ops.integer_attention import eager

    return eager


integer_attention = of_arrays_or_tensors(reference.integer_attention, _of_tensors)

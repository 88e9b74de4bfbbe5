"""Affinities A = exp(-D / tau), and their rows scaled to a mass of one: exactly, or by the nearest power of two."""

from types import ModuleType

from lapis.ops.arrays import of_arrays_or_tensors
from lapis.ops.row_scale import reference


def _of_tensors() -> ModuleType:
    from lapis.ops.row_scale import eager

    return eager


scale_rows = of_arrays_or_tensors(reference.scale_rows, _of_tensors)
affinity = of_arrays_or_tensors(reference.affinity, _of_tensors)

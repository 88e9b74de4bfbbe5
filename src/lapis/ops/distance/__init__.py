"""Distances of codes: q (..., N, C) and k (..., M, C)  ->  (..., N, M), of numpy arrays or tensors."""

from types import ModuleType

from lapis.ops.arrays import of_arrays_or_tensors
from lapis.ops.distance import reference


def _of_tensors() -> ModuleType:
    from lapis.ops.distance import torch_native

    return torch_native


l1_distance = of_arrays_or_tensors(reference.l1_distance, _of_tensors)
hamming_distance = of_arrays_or_tensors(reference.hamming_distance, _of_tensors)
squared_distance = of_arrays_or_tensors(reference.squared_distance, _of_tensors)

"""Distances of codes: q (..., N, C) and k (..., M, C)  ->  (..., N, M), of numpy arrays or tensors."""

from lapis.ops.arrays import of_arrays_or_tensors
from lapis.ops.distance import reference

l1_distance = of_arrays_or_tensors(reference.l1_distance, "torch_native")
hamming_distance = of_arrays_or_tensors(reference.hamming_distance, "torch_native")
squared_distance = of_arrays_or_tensors(reference.squared_distance, "eager")

"""Laplacian attention: Y_i = sum_j W_ij v_j, W the affinities exp(-D_ij / tau_h) scaled by rows."""

from types import ModuleType

from lapis.ops.arrays import of_arrays_or_tensors
from lapis.ops.attention import reference


def _of_tensors() -> ModuleType:
    from lapis.ops.attention import torch_native

    return torch_native


attention = of_arrays_or_tensors(reference.attention, _of_tensors)
attention_spikes = of_arrays_or_tensors(reference.attention_spikes, _of_tensors)

"""Laplacian attention: Y_i = sum_j W_ij v_j, W the affinities exp(-D_ij / tau_h) scaled by rows."""

from lapis.ops.arrays import of_arrays_or_tensors
from lapis.ops.attention import reference

attention = of_arrays_or_tensors(reference.attention, "torch_native")
attention_spikes = of_arrays_or_tensors(reference.attention_spikes, "eager")

"""Operations as pure functions: numpy arrays in, numpy arrays out, or tensors in, tensors out.

Each operation has a folder; the module in it is the variant, the function name is the operation:

reference.py     numpy, short enough to check by eye
eager.py         torch, differentiable, any device
torch_native.py  torch operators over the native library, falling back to eager

What this package exports takes the reference for arrays, and for tensors the fastest variant that fits.
"""

from lapis.ops.attention import attention, attention_spikes
from lapis.ops.distance import hamming_distance, l1_distance, squared_distance
from lapis.ops.integer_attention import integer_attention
from lapis.ops.lsq import lsq_codes, lsq_value
from lapis.ops.packing import pack6, unpack6
from lapis.ops.row_scale import affinity, scale_rows
from lapis.spikes import decode, encode, first_spike, latency

__all__ = [
    "affinity",
    "attention",
    "attention_spikes",
    "decode",
    "encode",
    "first_spike",
    "hamming_distance",
    "integer_attention",
    "l1_distance",
    "latency",
    "lsq_codes",
    "lsq_value",
    "pack6",
    "scale_rows",
    "squared_distance",
    "unpack6",
]

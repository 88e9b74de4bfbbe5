"""Kernels of learned step size quantization in Triton's language; `lapis.ops.lsq.triton` launches them.

The rules are those of `lapis.ops.lsq.eager`, in the same order of operations. Division is rounded as IEEE 754 says
(`div_rn`; a plain one is approximate on a GPU, and a value on a boundary would get another code), and a multiplication
is never fused with an addition, so that codes and values are equal in every bit.
"""

import triton
import triton.language as tl


@triton.jit
def scaled(x, step, offset, place, there, ROW: tl.constexpr, OFFSET: tl.constexpr, row):
    """u = (x - o)/s and s, of one block."""
    value = tl.load(x + place, mask=there, other=0.0)
    if OFFSET:
        value -= tl.load(offset)
    s = tl.load(step + row) if ROW else tl.load(step)
    return tl.div_rn(value, s + tl.zeros_like(value)), s


@triton.jit
def rounded(u, LOW: tl.constexpr, HIGH: tl.constexpr, LEAST: tl.constexpr):
    """z = clamp(floor(u + 1/2), low, high), or 0 where |z| < min_code; NaN stays NaN: a run that diverged is seen."""
    z = tl.minimum(tl.maximum(tl.floor(u + 0.5), LOW), HIGH)
    if LEAST > 1:
        z = tl.where(tl.abs(z) < LEAST, 0.0, z)
    return tl.where(u == u, z, u)


@triton.jit
def own_part(columns, BLOCK: tl.constexpr):
    """The row of this program, the places of its block in (rows, columns), and which of them exist."""
    blocks = tl.cdiv(columns, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    column = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    return row, row * columns + column, column < columns


@triton.jit
def quantize(
    x, step, offset, out, columns,
    ROW: tl.constexpr, OFFSET: tl.constexpr, VALUE: tl.constexpr,
    LOW: tl.constexpr, HIGH: tl.constexpr, LEAST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Codes z, or values z s + o, of x (rows, columns) with one step, or one for each row."""
    row, place, there = own_part(columns, BLOCK)
    u, s = scaled(x, step, offset, place, there, ROW, OFFSET, row)
    result = rounded(u, LOW, HIGH, LEAST)
    if VALUE:
        result *= s
        if OFFSET:
            result += tl.load(offset)
    tl.store(out + place, result, mask=there)


@triton.jit
def quantize_backward(
    grad, x, step, offset, dx, parts, columns,
    ROW: tl.constexpr, OFFSET: tl.constexpr, VALUE: tl.constexpr,
    LOW: tl.constexpr, HIGH: tl.constexpr, LEAST: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx, and each block's share of the gradients of step and offset, parts (2, programs)."""
    row, place, there = own_part(columns, BLOCK)
    u, s = scaled(x, step, offset, place, there, ROW, OFFSET, row)
    g = tl.load(grad + place, mask=there, other=0.0)
    inside = (u > LOW) & (u < HIGH)
    kept = tl.where(inside, g, g * 0.0)
    if VALUE:
        step_part = (rounded(u, LOW, HIGH, LEAST) - tl.where(inside, u, u * 0.0)) * g
        offset_part = tl.where(inside, g * 0.0, g)
    else:
        kept = tl.div_rn(kept, s + tl.zeros_like(kept))
        step_part = -(u * kept)
        offset_part = -kept
    tl.store(dx + place, kept, mask=there)
    tl.store(parts + tl.program_id(0), tl.sum(tl.where(there, step_part, 0.0), 0))
    tl.store(parts + tl.num_programs(0) + tl.program_id(0), tl.sum(tl.where(there, offset_part, 0.0), 0))

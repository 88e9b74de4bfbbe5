"""Functions in Triton's language that the kernels share: distances of a tile, signs, the factor of a row.

The two operations that cost most have a plain form, which the interpreter and every GPU can run, and one form in
assembly for each kind of card (`lapis.ops.gpu.choice`). Which one is a constant of the compilation.
"""

import triton
import triton.language as tl


@triton.jit
def add_differences(a, b, total, WORDS: tl.constexpr):
    """total + sum_c |a_c - b_c| over the four bytes of each word; with min_dp4a total - 2 sum_c min(a_c, b_c)."""
    if WORDS == "vabsdiff4":
        return tl.inline_asm_elementwise(
            "vabsdiff4.u32.u32.u32.add $0, $1, $2, $3;", "=r,r,r,r", [a, b, total], dtype=tl.int32, is_pure=True, pack=1
        )
    if WORDS == "min_dp4a":
        return tl.inline_asm_elementwise(
            "{ .reg .b32 least; min.u8x4 least, $1, $2; dp4a.u32.s32 $0, least, 0xfefefefe, $3; }",
            "=r,r,r,r", [a, b, total], dtype=tl.int32, is_pure=True, pack=1,
        )  # fmt: skip
    if WORDS == "v_sad_u8":
        return tl.inline_asm_elementwise(
            "v_sad_u8 $0, $1, $2, $3", "=v,v,v,v", [a, b, total], dtype=tl.int32, is_pure=True, pack=1
        )
    for byte in tl.static_range(4):
        total += tl.abs(((a >> (8 * byte)) & 255) - ((b >> (8 * byte)) & 255))
    return total


@triton.jit
def saturated_difference(a, b, WORDS: tl.constexpr):
    """min(max(a - b, 0), 1): with a = x/2 + 1/2 and b = y/2 it is (1 + sign(x - y)) / 2 of integers x and y."""
    if WORDS == "vabsdiff4" or WORDS == "min_dp4a":
        return tl.inline_asm_elementwise(
            "sub.sat.f32 $0, $1, $2;", "=f,f,f", [a, b], dtype=tl.float32, is_pure=True, pack=1
        )
    if WORDS == "v_sad_u8":
        return tl.inline_asm_elementwise(
            "v_sub_f32_e64 $0, $1, $2 clamp", "=v,v,v", [a, b], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.minimum(tl.maximum(a - b, 0.0), 1.0)


@triton.jit
def load_bytes(words, rows, channels, stride, C: tl.constexpr):
    """Bytes (R, C') of packed codes: byte c % 4 of word c // 4; 0 for channels that are not there."""
    place = (channels // 4)[None, :] * (stride * 4) + rows[:, None] * 4 + (channels % 4)[None, :]
    return tl.load(words.to(tl.pointer_type(tl.uint8)) + place, mask=(channels < C)[None, :], other=0)


@triton.jit
def distances(
    q, k, q_sums, k_sums, delay, i, j, q_stride, k_stride, delay_stride,
    C: tl.constexpr, CP: tl.constexpr, FIRST: tl.constexpr, LEVELS: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """delay_ij + sum_c |q_ic - k_jc| as float32 (I, J), exact; rows are padded, so that no load needs a mask.

    `delay` is loaded even where it is all zeros, with a row stride of 0: the load decides which entries of the tile a
    thread has. Without it a thread has a column of the tile, and loads twice as many words.
    """
    d = tl.load(delay + i[:, None] * delay_stride + j[None, :])
    if LEVELS > 0:
        d += (tl.load(q_sums + i) - C * (FIRST - 1))[:, None] + (tl.load(k_sums + j) - C * (FIRST - 1))[None, :]
        channels = tl.arange(0, CP)
        a, b = load_bytes(q, i, channels, q_stride, C), load_bytes(k, j, channels, k_stride, C)
        least = tl.zeros([i.shape[0], j.shape[0]], tl.int32)
        for level in tl.static_range(LEVELS):
            above_a, above_b = (a >= FIRST + level).to(tl.int8), (b >= FIRST + level).to(tl.int8)
            least = tl.dot(above_a, tl.trans(above_b), least)
        d -= 2 * least
    else:
        if WORDS == "min_dp4a":
            d += tl.load(q_sums + i)[:, None] + tl.load(k_sums + j)[None, :]
        # Unrolled by four: more at once needs more registers than there are.
        for word in tl.range(0, (C + 3) // 4, loop_unroll_factor=4):
            a, b = tl.load(q + word * q_stride + i), tl.load(k + word * k_stride + j)
            d = add_differences(a[:, None], b[None, :], d, WORDS)
    return d.to(tl.float32)


@triton.jit
def row_factor(nearest, mass, slope, POW2: tl.constexpr):
    """F_i of W_ij = 2**((nearest_i - d_ij) slope) F_i: 1/mass, or for shifted rows 2**(top - k).

    There top = -nearest slope and k = round(log2 Z_i), Z_i = mass 2**top. The exponent of mass 2**(top - floor(top)) is
    read from its bits; 0x3504f3 is the mantissa of sqrt(2) rounded down, so k rounds up exactly above sqrt(2). A row
    that is far from every key has a large top whose fraction matters: it is kept in float64, once per row.
    """
    if POW2:
        top = -(nearest.to(tl.float64) * slope)
        whole = tl.floor(top)
        bits = (mass * tl.exp2((top - whole).to(tl.float32))).to(tl.int32, bitcast=True)
        rounded_up = ((bits & 0x7FFFFF) > 0x3504F3).to(tl.int32)
        k = whole + ((bits >> 23) - 127 + rounded_up).to(tl.float64)
        return tl.exp2((top - k).to(tl.float32))
    return 1.0 / mass

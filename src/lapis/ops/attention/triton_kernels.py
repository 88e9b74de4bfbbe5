"""Kernels of Laplacian attention in Triton's language; `lapis.ops.attention.triton` launches them.

Forward, for a tile of queries: keys go by in tiles with a running nearest distance and mass, so that no N x M matrix is
stored. Both row scales are one factor per row, which is applied at the end:

    W_ij = 2**((nearest_i - d_ij) slope_h) F_i,  slope = log2(e)/tau,  d_ij = delay_ij + sum_c |q_ic - k_jc|

Backward, with delta_i = dY_i . Y_i / sum_j W_ij (`lapis.ops.row_scale.eager.shifted_rows` says why for both scales):

    dS_ij = W_ij (dY_i . v_j - delta_i)                 the gradient of ln A_ij = -d_ij / tau_h
    dv_j  = sum_i W_ij dY_i                             dtau_h = sum_ij dS_ij d_ij / tau_h**2
    dq_ic = -1/tau sum_j dS_ij sign(q_ic - k_jc)        dk_jc = 1/tau sum_i dS_ij sign(q_ic - k_jc)

A sum of signs is a sum of saturated differences, sign(x) = 2 sat(x/2 + 1/2) - 1: exact, and the same for every window.
"""

import triton
import triton.language as tl

from lapis.ops.gpu.device import distances, load_bytes, row_factor, saturated_difference

# Added to codes to make them bytes: codes from -64 to 191 fit.
SHIFT = tl.constexpr(64)


@triton.jit
def pack_codes(
    codes, words, sums, n, heads, stride_b, stride_h, stride_n, padded,
    C: tl.constexpr, WP: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """codes (B, H, N, C) of any float type -> words (B H, (C + 3)/4, N padded) of four bytes, and sums of the bytes."""
    tiles = padded // BM
    pair = (tl.program_id(0) // tiles).to(tl.int64)
    i = (tl.program_id(0) % tiles) * BM + tl.arange(0, BM)
    w = tl.arange(0, WP)
    start = codes + (pair // heads) * stride_b + (pair % heads) * stride_h + i[:, None] * stride_n
    word = tl.zeros([BM, WP], tl.int32)
    total = tl.zeros([BM], tl.int32)
    for byte in tl.static_range(4):
        c = w * 4 + byte
        there = (i < n)[:, None] & (c < C)[None, :]
        code = tl.load(start + c[None, :], mask=there, other=0.0).to(tl.int32) + SHIFT
        code = tl.where(there, code, 0)
        word |= code << (8 * byte)
        total += tl.sum(code, 1)
    count: tl.constexpr = (C + 3) // 4
    tl.store(words + (pair * count + w)[None, :] * padded + i[:, None], word, mask=(w < count)[None, :])
    tl.store(sums + pair * padded + i, total)


@triton.jit
def forward(
    q, k, q_sums, k_sums, delay, v, slopes, y, nearest, factors, masses,
    n, m, heads, q_padded, k_padded, delay_h, delay_i, v_b, v_h, v_n, y_b, y_h, y_n,
    C: tl.constexpr, CP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, POW2: tl.constexpr,
    FIRST: tl.constexpr, LEVELS: tl.constexpr, WORDS: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """One tile of BM queries: y, and what backward needs of each row."""
    count: tl.constexpr = (C + 3) // 4
    tiles = tl.cdiv(n, BM)
    pair = (tl.program_id(0) // tiles).to(tl.int64)
    batch, head = pair // heads, pair % heads
    i = (tl.program_id(0) % tiles) * BM + tl.arange(0, BM)
    c = tl.arange(0, CP)
    slope64 = tl.load(slopes + head)
    slope = slope64.to(tl.float32)
    near = tl.full([BM], float("inf"), tl.float32)
    mass = tl.zeros([BM], tl.float32)
    mixed = tl.zeros([BM, CP], tl.float32)
    v += batch * v_b + head * v_h
    for first in range(0, m, BN):
        j = first + tl.arange(0, BN)
        d = distances(
            q + pair * count * q_padded, k + pair * count * k_padded,
            q_sums + pair * q_padded, k_sums + pair * k_padded,
            delay + head * delay_h, i, j, q_padded, k_padded, delay_i, C, CP, FIRST, LEVELS, WORDS,
        )  # fmt: skip
        d = tl.where((j < m)[None, :], d, float("inf"))
        nearer = tl.minimum(near, tl.min(d, 1))
        a = tl.exp2((nearer[:, None] - d) * slope)
        shrink = tl.exp2((nearer - near) * slope)
        mass = mass * shrink + tl.sum(a, 1)
        value = tl.load(v + j[:, None] * v_n + c[None, :], mask=(j < m)[:, None] & (c < C)[None, :], other=0.0)
        mixed = tl.dot(a, value, mixed * shrink[:, None], input_precision=DOT)
        near = nearer
    factor = row_factor(near, mass, slope64, POW2)
    tl.store(nearest + pair * n + i, near, mask=i < n)
    tl.store(factors + pair * n + i, factor, mask=i < n)
    tl.store(masses + pair * n + i, mass * factor, mask=i < n)
    place = batch * y_b + head * y_h + i[:, None] * y_n + c[None, :]
    tl.store(y + place, mixed * factor[:, None], mask=(i < n)[:, None] & (c < C)[None, :])


@triton.jit
def backward_scores(
    q, k, q_sums, k_sums, delay, v, slopes, dy, nearest, factors, deltas, ds, dv, moments,
    n, m, heads, q_padded, k_padded, delay_h, delay_i, v_b, v_h, v_n, dy_b, dy_h, dy_n,
    C: tl.constexpr, CP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    FIRST: tl.constexpr, LEVELS: tl.constexpr, WORDS: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """One tile of BN keys: dS (B H, N, M), dv (B H, M, C), and this tile's part of sum_ij dS_ij d_ij."""
    count: tl.constexpr = (C + 3) // 4
    tiles = tl.cdiv(m, BN)
    pair = (tl.program_id(0) // tiles).to(tl.int64)
    batch, head = pair // heads, pair % heads
    j = (tl.program_id(0) % tiles) * BN + tl.arange(0, BN)
    c = tl.arange(0, CP)
    slope = tl.load(slopes + head).to(tl.float32)
    keys = (j < m)[:, None] & (c < C)[None, :]
    value = tl.load(v + batch * v_b + head * v_h + j[:, None] * v_n + c[None, :], mask=keys, other=0.0)
    mixed = tl.zeros([BN, CP], tl.float32)
    moment = tl.zeros([BM], tl.float32)
    dy += batch * dy_b + head * dy_h
    for first in range(0, n, BM):
        i = first + tl.arange(0, BM)
        rows = i < n
        near = tl.load(nearest + pair * n + i, mask=rows, other=0.0)
        # A factor of 0 for rows past the end: they weigh nothing.
        factor = tl.load(factors + pair * n + i, mask=rows, other=0.0)
        delta = tl.load(deltas + pair * n + i, mask=rows, other=0.0)
        grad = tl.load(dy + i[:, None] * dy_n + c[None, :], mask=rows[:, None] & (c < C)[None, :], other=0.0)
        d = distances(
            q + pair * count * q_padded, k + pair * count * k_padded,
            q_sums + pair * q_padded, k_sums + pair * k_padded,
            delay + head * delay_h, i, j, q_padded, k_padded, delay_i, C, CP, FIRST, LEVELS, WORDS,
        )  # fmt: skip
        weight = tl.where((j < m)[None, :], tl.exp2((near[:, None] - d) * slope) * factor[:, None], 0.0)
        mixed = tl.dot(tl.trans(weight), grad, mixed, input_precision=DOT)
        score = weight * (tl.dot(grad, tl.trans(value), input_precision=DOT) - delta[:, None])
        moment += tl.sum(score * d, 1)
        tl.store(ds + (pair * n + i)[:, None] * m + j[None, :], score, mask=rows[:, None] & (j < m)[None, :])
    tl.store(dv + (pair * m + j)[:, None] * C + c[None, :], mixed, mask=keys)
    tl.store(moments + tl.program_id(0), tl.sum(moment, 0))


@triton.jit
def sum_signs(
    ds, own, other, out, rates, n, m, heads, ds_x, ds_y, own_padded, other_padded,
    C: tl.constexpr, CP: tl.constexpr, BX: tl.constexpr, UNROLL: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """out_xc = -1/tau_h sum_y dS_xy sign(own_xc - other_yc) for BX rows; n rows x and m rows y.

    With queries as `own` it is dq, and with keys as `own` and dS turned by its strides it is dk.
    """
    count: tl.constexpr = (C + 3) // 4
    tiles = tl.cdiv(n, BX)
    pair = (tl.program_id(0) // tiles).to(tl.int64)
    x = (tl.program_id(0) % tiles) * BX + tl.arange(0, BX)
    c = tl.arange(0, CP)
    rows = x < n
    half = load_bytes(own + pair * count * own_padded, x, c, own_padded, C).to(tl.float32) * 0.5 + 0.5
    other = (other + pair * count * other_padded).to(tl.pointer_type(tl.uint8))
    place = (c // 4) * (other_padded * 4) + c % 4
    ds += pair * n * m + x * ds_x
    total = tl.zeros([BX], tl.float32)
    above = tl.zeros([BX, CP], tl.float32)
    for first in range(0, m, UNROLL):
        for step in tl.static_range(UNROLL):
            y = first + step
            # Rows are padded, so `other` can be read past the end; what it is multiplied by there is 0.
            column = tl.load(ds + y * ds_y, mask=rows & (x * 0 + y < m), other=0.0)
            key = tl.load(other + place + y * 4, mask=c < C, other=0).to(tl.float32) * 0.5
            total += column
            above += column[:, None] * saturated_difference(half, key[None, :], WORDS)
    rate = tl.load(rates + pair % heads)
    result = rate * (total[:, None] - 2.0 * above)
    tl.store(out + (pair * n + x)[:, None] * C + c[None, :], result, mask=rows[:, None] & (c < C)[None, :])

"""A calculation, not a measurement: the time of one attention layer on GPUs, from operations, bytes and their limits.

Each kernel is bounded by the instructions that its cores issue, by its products on matrix units, and by the bytes that
it moves; the largest of the three is the bound. Instructions of the forward loop were counted in the code compiled for
sm_80 and sm_90 (docs/gpu.md) and stand for all cards; those of backward and of MI300X are estimates. `REACHED` is the
share of a bound that such kernels usually reach. Nothing here was measured on a card.
"""

from __future__ import annotations

from dataclasses import dataclass

from lapis.bench.sizes import Size

# The paper's small network, and its batch in training.
TRAINING = Size(128, 6, 197, 64)
REACHED = 0.7
# Flash attention in bf16, as published: the share of the peak that it reaches on rows of about 200 tokens.
FLASH_REACHED = 0.4
THREADS_IN_STEP = 32
TILE = 32
# Instructions of one thread for each entry of a 32 x 32 tile (8 entries): 1,099 and 1,208 for 64 channels.
FORWARD_PER_ENTRY = 1100 / 8
# The same tile in backward has two products and half the queries.
SCORES_PER_ENTRY = 1250 / 4
# A sum of signs: a saturating and an ordinary multiply-add for each channel of an entry, and a few loads.
SIGNS_PER_CHANNEL = 2.2
# torch.cdist: a subtraction, an absolute value and an addition for each channel, and its reduction over a block.
CDIST_PER_ENTRY = 190 * THREADS_IN_STEP


@dataclass(frozen=True)
class Gpu:
    """Limits from the vendor's data sheet: cores' issue slots per clock, matrix units in bf16, memory."""

    name: str
    units: int
    ghz: float
    # Instructions that one unit issues per clock, each for 32 threads.
    issues: float
    bf16_tflops: float
    tb_per_s: float


GPUS = (
    Gpu("A100", 108, 1.41, 4, 312, 2.0),
    Gpu("H100", 132, 1.75, 4, 989, 3.35),
    Gpu("B200", 148, 1.85, 4, 2250, 8.0),
    Gpu("RTX PRO 6000", 188, 2.4, 4, 503, 1.79),
    # Two instructions for 32 threads are one for 64.
    Gpu("MI300X", 304, 2.1, 4, 1307, 5.3),
)


@dataclass(frozen=True)
class Estimate:
    """Microseconds of one layer on one GPU, what bounds it, and the numbers behind it."""

    gpu: str
    work: str
    microseconds: float
    bound_by: str
    instructions: float
    gflop: float
    megabytes: float


def roofline(size: Size = TRAINING) -> list[Estimate]:
    """Every GPU: our forward and backward, flash attention in bf16, and torch.cdist."""
    pairs = size.batch * size.heads
    entries = pairs * size.tokens**2
    # Whole tiles are computed, also where the last is not full.
    tiles = pairs * (-(-size.tokens // TILE) * TILE) ** 2
    tokens = pairs * size.tokens * size.channels
    words = size.channels / 64
    product = 2 * entries * size.channels / 1e9
    scores = 4 * entries / 1e6
    signs = 2 * entries * size.channels * SIGNS_PER_CHANNEL
    found = []
    for gpu in GPUS:
        found += [
            # q and k as bytes, v and y in float32; products in three parts.
            _estimate(gpu, "lapis forward", tiles * FORWARD_PER_ENTRY * words, 3 * product, tokens * 10 / 1e6, REACHED),
            # dS is written once and read twice; q, k as bytes, v, dY, dq, dk, dv in float32.
            _estimate(
                gpu, "lapis backward", tiles * SCORES_PER_ENTRY * words + signs, 6 * product,
                3 * scores + tokens * 22 / 1e6, REACHED,
            ),
            _estimate(gpu, "flash attention forward, bf16", 0, 2 * product, tokens * 8 / 1e6, FLASH_REACHED),
            _estimate(gpu, "flash attention backward, bf16", 0, 5 * product, tokens * 16 / 1e6, FLASH_REACHED),
            _estimate(gpu, "cdist forward", entries * CDIST_PER_ENTRY, 0, 2 * scores, REACHED),
            # Its gradient goes through a buffer of N x N x C numbers.
            _estimate(gpu, "cdist backward", 0, 0, 4 * entries * size.channels * 4 / 1e6, REACHED),
        ]  # fmt: skip
    return found


def _estimate(gpu: Gpu, work: str, threads: float, gflop: float, megabytes: float, reached: float) -> Estimate:
    """`threads` counts instructions of single threads."""
    instructions = threads / THREADS_IN_STEP
    times = {
        "instructions": instructions / (gpu.units * gpu.ghz * gpu.issues * 1e3),
        "matrix units": gflop / gpu.bf16_tflops * 1e3,
        "memory": megabytes / gpu.tb_per_s,
    }
    bound = max(times, key=times.__getitem__)
    return Estimate(gpu.name, work, round(times[bound] / reached, 1), bound, instructions, gflop, megabytes)

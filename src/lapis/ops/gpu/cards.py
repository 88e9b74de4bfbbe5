"""How each kind of GPU finds distances fastest: one table, with the reason beside each row.

Two units of a GPU can find sum_c |q_c - k_c| exactly. The ordinary cores take four channels at a time, packed as bytes
into a word. The matrix units multiply thermometers, min(a, b) = sum_t [a >= t] [b >= t], one product for each level t.
The first costs the same for every window, the second grows with the number of levels, so it wins for few levels only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# How four byte differences are found and summed; "plain" is ordinary arithmetic, which every device can run.
Words = Literal["vabsdiff4", "min_dp4a", "v_sad_u8", "plain"]
# How a product of float32 matrices is taken on matrix units: three products of shorter numbers, or on ordinary cores.
Dot = Literal["tf32x3", "bf16x3", "ieee"]


@dataclass(frozen=True)
class Card:
    """One row of the table: GPUs of one kind."""

    architectures: tuple[str, ...]
    words: Words
    dot: Dot
    # Threads that run in step.
    lanes: int
    # Thermometers are used up to this many levels, T or 2 T for signed codes.
    thermometer_levels: int
    reason: str


# The levels come from instructions counted in the compiled forward kernel for a tile of 32 x 32 and 64 channels
# (docs/gpu.md): a calculation, since no card was at hand.
CARDS = (
    Card(
        ("sm_80", "sm_86", "sm_87", "sm_89"), "vabsdiff4", "tf32x3", 32, 10,
        "VABSDIFF4 adds four differences at once: 1,099 instructions per tile; thermometers 556 + 52 per level",
    ),
    Card(
        ("sm_90",), "vabsdiff4", "tf32x3", 32, 12,
        "VABSDIFF4 adds four differences at once: 1,208 instructions per tile; thermometers 561 + 52 per level",
    ),
    Card(
        ("sm_100", "sm_103"), "vabsdiff4", "tf32x3", 32, 11,
        "VABSDIFF4 adds four differences at once: 1,146 instructions per tile; thermometers 554 + 50 per level",
    ),
    Card(
        ("sm_120", "sm_121"), "min_dp4a", "tf32x3", 32, 15,
        "no VABSDIFF4; VIMNMX.U8x4 and IDP.4A take two instructions: 1,424 per tile; thermometers 575 + 55 per level",
    ),
    Card(
        ("gfx90a", "gfx942", "gfx950"), "v_sad_u8", "bf16x3", 64, 0,
        "v_sad_u8 adds four differences in one instruction; thermometers were compiled, but their loops not counted",
    ),
)  # fmt: skip
OTHER = Card((), "plain", "ieee", 32, 0, "not in the table: plain arithmetic, which is right everywhere but slower")


def card_of(architecture: str) -> Card:
    """The row of an architecture such as `sm_90` or `gfx942:sramecc+:xnack-`."""
    name = architecture.split(":")[0]
    return next((card for card in CARDS if name in card.architectures), OTHER)

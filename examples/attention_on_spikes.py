"""Attention by spike timing, on three tokens small enough to check by hand. Needs numpy only.

Run it:  python examples/attention_on_spikes.py
"""

from __future__ import annotations

import numpy as np

from lapis.ops import affinity, attention, attention_spikes, encode, l1_distance, latency, scale_rows

WINDOW = 5
TAU = 4.0
# `attention` may compute in float32.
FLOAT32_ERROR = 1e-6


def main() -> None:
    # A token is a row of codes 0..T. The first two are close, the third is far from both.
    codes = np.array([[5, 3, 0, 1], [5, 2, 0, 1], [0, 0, 4, 5]])
    spikes = encode(codes, WINDOW)
    print(f"first spikes of token 0, one row per neuron, one column per step ({WINDOW}):")
    for neuron in range(codes.shape[1]):
        marks = "".join("|" if fired else "." for fired in spikes[:, 0, neuron])
        print(f"  code {codes[0, neuron]}   {marks}   latency {latency(codes, WINDOW)[0, neuron]}")

    distance = l1_distance(latency(codes, WINDOW), latency(codes, WINDOW))
    print("\ndistance of latencies, every token with every token:", *distance, sep="\n  ")
    assert np.array_equal(distance, l1_distance(codes, codes)), "latencies and codes have the same distance"

    leaked = np.exp(-1 / TAU) ** distance
    print("\naffinity: a membrane at 1 that has leaked for that many steps:", *leaked.round(3), sep="\n  ")
    assert np.allclose(leaked, affinity(distance, TAU), rtol=1e-12), "the leak is an exponential"

    rows = scale_rows(-distance / TAU, "pow2")
    print("\nattention weights, rows scaled by a power of two:", *rows.round(3), sep="\n  ")
    assert (np.abs(np.log2(rows.sum(axis=1))) <= 0.5).all(), "the sum of a row is one, up to a factor of root two"

    # The operator works on heads: (H, N, C), here one head.
    head, trains = codes[None], encode(codes[None], WINDOW)
    by_codes = attention(head, head, head, TAU)
    # A spike that arrives at step n counts T - n times.
    by_spikes = np.tensordot(WINDOW - np.arange(WINDOW), attention_spikes(trains, trains, trains, TAU), axes=1)
    assert np.allclose(by_spikes, by_codes, rtol=FLOAT32_ERROR)
    print("\nmixed values, the same from spike trains and from codes:", *by_codes[0].round(3), sep="\n  ")


if __name__ == "__main__":
    main()

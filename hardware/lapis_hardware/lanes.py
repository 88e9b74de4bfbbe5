"""The lanes that are measured: which module with which parameters, its stimuli, and what it must answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lapis.deploy import leak
from lapis_hardware.netlist import Bits
from lapis_hardware.stimuli import SEED, Stimuli, int8

Int64 = npt.NDArray[np.int64]
# Parts with many equal channels are measured with a few.
FEW = 4
EIGHT = 8
RANDOM_OPERATIONS = 400


@dataclass(frozen=True)
class LaneRun:
    """Stimuli by port (cycles, bits), the answers by port where a cycle has one, the work that is done."""

    inputs: dict[str, Bits]
    answers: dict[str, tuple[Int64, Bits]]  # the cycles, and the bits in them
    work: int


@dataclass(frozen=True)
class Lane:
    """`unit` is what the energy is divided by. `about` is what the documents say; `drive` makes the stimuli."""

    name: str
    module: str
    unit: str
    about: str
    drive: Callable[[Stimuli, dict[str, int]], LaneRun]
    parameters: dict[str, int] = field(default_factory=dict)


def bits(numbers: Any, width: int) -> Bits:
    """Vectors (cycles, C) or numbers (cycles,) as bits (cycles, C * width), the first and lowest first."""
    array = np.asarray(numbers, dtype=np.int64)
    array = array[:, None] if array.ndim == 1 else array
    ones = (array[..., None] >> np.arange(width)) & 1
    return np.ascontiguousarray(ones.reshape(len(array), -1)).astype(np.uint8)


def every(answer: Bits) -> tuple[Int64, Bits]:
    """An answer in every cycle."""
    return np.arange(len(answer)), answer


def by_pair(per_row: Int64, keys: int) -> Int64:
    """(R, ...) -> (R N, ...), each row repeated for its keys."""
    return np.repeat(per_row, keys, axis=0)


def flat(per_pair: Int64) -> Int64:
    return per_pair.reshape(-1, *per_pair.shape[2:])


def low_of(s: Stimuli, p: dict[str, int]) -> int:
    return s.window if p["SIGNED_CODES"] else 0


def codes_run(s: Stimuli, p: dict[str, int]) -> LaneRun:
    low, keys = low_of(s, p), s.k.shape[1]
    q, k, wide = by_pair(s.q + low, keys), flat(s.k + low), p["DISTANCE_BITS"]
    inputs = {
        "query": bits(q, p["CODE_BITS"]), "key": bits(k, p["CODE_BITS"]),
        "query_sum": bits(q.sum(axis=1), wide), "key_sum": bits(k.sum(axis=1), wide),
    }  # fmt: skip
    return LaneRun(inputs, {"distance": every(bits(flat(s.distance), wide))}, len(q))


def fired(codes: Int64, window: int, signed: bool) -> Int64:
    """Which neurons have fired by each step: (..., C) -> (..., T, wires)."""
    both = np.concatenate([codes, -codes], axis=-1) if signed else codes
    return (both[..., None, :] >= np.arange(window, 0, -1)[:, None]).astype(np.int64)


def temporal_run(s: Stimuli, p: dict[str, int]) -> LaneRun:
    signed, keys, steps = bool(p["SIGNED_CODES"]), s.k.shape[1], s.window
    k = fired(flat(s.k), steps, signed)
    q = fired(by_pair(s.q, keys), steps, signed)
    first = np.tile(np.arange(steps) == 0, len(k))
    inputs = {"first": bits(first, 1), "query_fired": bits(flat(q), 1), "key_fired": bits(flat(k), 1)}
    ends = np.arange(1, len(k) + 1) * steps - 1
    return LaneRun(inputs, {"distance": (ends, bits(flat(s.distance), p["DISTANCE_BITS"]))}, len(k))


def fired_run(s: Stimuli, p: dict[str, int]) -> LaneRun:
    have = fired(flat(s.k), s.window, bool(p["SIGNED_CODES"]))
    spikes = np.diff(have, axis=1, prepend=0)
    first = np.tile(np.arange(s.window) == 0, len(have))
    answer = every(bits(flat(have), 1))
    return LaneRun({"first": bits(first, 1), "spikes": bits(flat(spikes), 1)}, {"fired": answer}, len(have))


def code_sum_run(s: Stimuli, p: dict[str, int]) -> LaneRun:
    k = flat(s.k + low_of(s, p))
    return LaneRun(
        {"codes": bits(k, p["CODE_BITS"])}, {"total": every(bits(k.sum(axis=1), p["DISTANCE_BITS"]))}, len(k)
    )  # fmt: skip


def dot_run(s: Stimuli, p: dict[str, int]) -> LaneRun:
    q, k = by_pair(s.q, s.k.shape[1]), flat(s.k)
    inputs = {"query": bits(q, p["CODE_BITS"]), "key": bits(k, p["CODE_BITS"])}
    return LaneRun(inputs, {"score": every(bits((q * k).sum(axis=1), score_bits(p)))}, len(q))


def int8_run(s: Stimuli, p: dict[str, int]) -> LaneRun:
    q, k = by_pair(int8(s.q_real, s.window), s.k.shape[1]), flat(int8(s.k_real, s.window))
    inputs = {"query": bits(q, EIGHT), "key": bits(k, EIGHT)}
    return LaneRun(inputs, {"score": every(bits((q * k).sum(axis=1), int8_bits(p)))}, len(q))


def score_bits(p: dict[str, int]) -> int:
    """Bits of a dot product of codes, with its sign where codes are signed."""
    return (p["CHANNELS"] * p["WINDOW"] ** 2).bit_length() + p["SIGNED_CODES"]


def int8_bits(p: dict[str, int]) -> int:
    return (p["CHANNELS"] * 128**2).bit_length() + 1


def lookup_run(s: Stimuli, p: dict[str, int]) -> LaneRun:
    """All rows read the table that was synthesized, that of the first row's head."""
    own = replace(
        s, mantissa=np.repeat(s.mantissa[:1], len(s.q), axis=0), exponent=np.repeat(s.exponent[:1], len(s.q), axis=0)
    )
    gain = by_pair(own.gain - s.exponent.min(), s.k.shape[1])
    inputs = {"distance": bits(flat(s.distance), p["DISTANCE_BITS"]), "gain": bits(gain, p["EXPONENT_BITS"])}
    return LaneRun(inputs, {"affinity": every(bits(flat(own.affinity), p["AFFINITY_BITS"]))}, s.distance.size)


def leak_run(s: Stimuli, p: dict[str, int]) -> LaneRun:
    """As many steps of the first row's leak as its farthest key is away."""
    steps = int(s.distance[0].max()) + 1
    start = np.arange(steps) == 0
    ones = np.ones(steps, dtype=np.int64)
    inputs = {
        "start": bits(start, 1), "step": bits(~start, 1), "factor": bits(s.factor[0] * ones, 32),
        "factor_exponent": bits(s.factor[1] * ones, p["EXPONENT_BITS"]),
    }  # fmt: skip
    answers = {
        "mantissa": every(bits(s.mantissa[0, :steps], 32)),
        "exponent": every(bits(s.exponent[0, :steps] - s.exponent[0, 0], p["EXPONENT_BITS"])),
    }
    return LaneRun(inputs, answers, steps)


def latch_run(s: Stimuli, p: dict[str, int]) -> LaneRun:
    """A few pairs of the first row, each through all steps of the leak."""
    steps, nearest = int(s.distance[0].max()) + 1, int(s.distance[0].min())
    elapsed = np.arange(steps)
    left = leak.read(s.mantissa[0, elapsed], s.exponent[0, elapsed], s.exponent[0, nearest], s.bits)
    pairs = np.arange(0, s.k.shape[1], EIGHT)
    inputs = {
        "run": bits(np.ones(steps * len(pairs), dtype=np.int64), 1),
        "elapsed": bits(np.tile(elapsed, len(pairs)), p["DISTANCE_BITS"]),
        "distance": bits(np.repeat(s.distance[0, pairs], steps), p["DISTANCE_BITS"]),
        "now": bits(np.tile(np.where(elapsed < nearest, 0, left), len(pairs)), p["AFFINITY_BITS"]),
    }
    ends = np.arange(1, len(pairs) + 1) * steps - 1
    return LaneRun(inputs, {"affinity": (ends, bits(s.affinity[0, pairs], p["AFFINITY_BITS"]))}, len(pairs))


def row_sum_run(s: Stimuli, p: dict[str, int]) -> LaneRun:
    a, keys = s.affinity, s.k.shape[1]
    # A row is started in a cycle of its own.
    affinity = np.concatenate([np.zeros((len(a), 1), dtype=np.int64), a], axis=1)
    start = np.tile(np.arange(keys + 1) == 0, len(a))
    inputs = {
        "start": bits(start, 1), "add": bits(~start, 1), "affinity": bits(flat(affinity), p["AFFINITY_BITS"]),
    }  # fmt: skip
    ends = np.arange(1, len(a) + 1) * (keys + 1) - 1
    return LaneRun(inputs, {"mass": (ends, bits(s.mass, p["MASS_BITS"]))}, a.size)


def row_exponent_run(s: Stimuli, p: dict[str, int]) -> LaneRun:
    # As it works in a row: the sum grows key by key, and the exponent follows.
    grown = np.cumsum(s.affinity, axis=1)
    ends = np.arange(1, len(grown) + 1) * grown.shape[1] - 1
    answer = ends, bits(s.scale, p["SCALE_BITS"])
    return LaneRun({"mass": bits(flat(grown), p["MASS_BITS"])}, {"scale": answer}, len(grown))


def value_run(s: Stimuli, a: Int64, v: Int64, widths: tuple[int, int, int]) -> LaneRun:
    """Weights (R, N) times values (R, N, C) of a few channels."""
    keys, few = a.shape[1], v[..., :FEW]
    weight = np.concatenate([np.zeros((len(a), 1), dtype=np.int64), a], axis=1)
    values = np.concatenate([few[:, :1], few], axis=1)
    start = np.tile(np.arange(keys + 1) == 0, len(a))
    inputs = {
        "start": bits(start, 1), "add": bits(~start, 1), "affinity": bits(flat(weight), widths[0]),
        "values": bits(flat(values), widths[1]),
    }  # fmt: skip
    ends = np.arange(1, len(a) + 1) * (keys + 1) - 1
    return LaneRun(inputs, {"sums": (ends, bits(np.einsum("rn,rnc->rc", a, few), widths[2]))}, few.size)


def value_codes_run(s: Stimuli, p: dict[str, int]) -> LaneRun:
    return value_run(s, s.affinity, s.v, (p["AFFINITY_BITS"], p["VALUE_BITS"], p["SUM_BITS"]))


def value_dot_run(s: Stimuli, p: dict[str, int]) -> LaneRun:
    scores = np.maximum((s.q[:, None] * s.k).sum(axis=-1), 0)
    bits_of = score_bits(p) - p["SIGNED_CODES"]
    return value_run(s, scores, s.v, (bits_of, p["VALUE_BITS"], dot_sum_bits(p)))


def value_int8_run(s: Stimuli, p: dict[str, int]) -> LaneRun:
    # Weights of 8 bits, the largest of a row 255, as after a softmax.
    a = s.affinity
    weights = np.floor(a * (255 / a.max(axis=1, keepdims=True)) + 0.5).astype(np.int64)
    return value_run(s, weights, int8(s.v_real, s.window), (EIGHT, EIGHT, int8_sum_bits(p)))


def dot_sum_bits(p: dict[str, int]) -> int:
    return (p["KEYS"] * p["CHANNELS"] * p["WINDOW"] ** 3).bit_length() + 1


def int8_sum_bits(p: dict[str, int]) -> int:
    return (p["KEYS"] * 255 * 128).bit_length() + 1


def value_events_run(s: Stimuli, p: dict[str, int]) -> LaneRun:
    """One channel, and only the cycles in which it works: a cycle per spike, and one per step."""
    cycles: list[tuple[int, int, int, int, int]] = []
    ends, answers = [], []
    for row in range(len(s.q)):
        for c in range(0, s.v.shape[2], s.v.shape[2] // FEW):
            cycles.append((1, 0, 0, 0, 0))
            for level in range(s.window, 0, -1):
                for j in np.flatnonzero(np.abs(s.v[row, :, c]) == level):
                    positive = int(s.v[row, j, c] > 0)
                    cycles.append((0, 0, int(s.affinity[row, j]), positive, 1 - positive))
                cycles.append((0, 1, 0, 0, 0))
            ends.append(len(cycles) - 1)
            answers.append(int(s.sums[row, c]))
    columns = [np.array(column) for column in zip(*cycles, strict=True)]
    names = {"start": 1, "tick": 1, "affinity": p["AFFINITY_BITS"], "spikes_on": 1, "spikes_off": 1}
    inputs = {name: bits(column, width) for (name, width), column in zip(names.items(), columns, strict=True)}
    answer = np.array(ends), bits(answers, p["SUM_BITS"])
    return LaneRun(inputs, {"sums": answer}, len(answers) * s.v.shape[1])


def readout_run(s: Stimuli, p: dict[str, int]) -> LaneRun:
    """The real sums against evenly falling thresholds of the row's power of two."""
    sums, steps = s.sums[:, :FEW], s.window
    levels = np.arange(steps, 0, -1)
    on = (levels[None] << s.scale[:, None]) - (1 << (s.scale[:, None] - 1))
    off = -on if p["SIGNED_READOUT"] else np.full_like(on, -(1 << (p["SUM_BITS"] - 1)))
    reached, below = sums[:, None] >= on[..., None], sums[:, None] < off[..., None]
    before = np.zeros_like(reached[:, :1])
    inputs = {
        "start": bits(np.tile(np.arange(steps + 1) == 0, len(sums)), 1),
        "fire": bits(np.tile(np.arange(steps + 1) > 0, len(sums)), 1),
        "threshold_on": bits(flat(np.concatenate([on[:, :1], on], axis=1)), p["SUM_BITS"]),
        "threshold_off": bits(flat(np.concatenate([off[:, :1], off], axis=1)), p["SUM_BITS"]),
        "sums": bits(np.repeat(sums, steps + 1, axis=0), p["SUM_BITS"]),
    }
    answers = {
        name: every(bits(flat(np.concatenate([before, np.diff(now, axis=1, prepend=False)], axis=1)), 1))
        for name, now in (("spikes_on", reached), ("spikes_off", below & bool(p["SIGNED_READOUT"])))
    }
    return LaneRun(inputs, answers, sums.size)


def sequencer_run(s: Stimuli, p: dict[str, int]) -> LaneRun:
    """Whole rows, from start to done; affinities are always ready."""
    cycles = 2 * p["KEYS"] + p["WINDOW"] + 10
    start = np.tile(np.arange(cycles) == 0, FEW)
    done = np.tile(np.arange(cycles) == 2 * p["KEYS"] + p["WINDOW"] + 7, FEW)
    return LaneRun(
        {"start": bits(start, 1), "ready": bits(np.ones_like(start), 1)}, {"done": every(bits(done, 1))}, FEW
    )


def integers_run(operation: Callable[[Int64, Int64], Int64], width: int, out: int) -> Callable[..., LaneRun]:
    def run(s: Stimuli, p: dict[str, int]) -> LaneRun:
        random = np.random.default_rng(SEED)
        a, b = random.integers(-(1 << (width - 1)), 1 << (width - 1), (2, RANDOM_OPERATIONS))
        answer = every(bits(operation(a, b), out))
        return LaneRun({"a": bits(a, width), "b": bits(b, width)}, {"y": answer}, RANDOM_OPERATIONS)

    return run


def floats_run(kind: type[np.floating[Any]], multiply: bool) -> Callable[..., LaneRun]:
    """Products of real queries and keys, and the running sums of their dot products."""
    width = np.dtype(kind).itemsize * 8
    word = np.dtype(f"u{width // 8}")

    def run(s: Stimuli, p: dict[str, int]) -> LaneRun:
        a, b = s.q_real.astype(kind), s.k_real[:, 0].astype(kind)
        product = (a * b).astype(kind)
        if not multiply:
            sums = np.zeros((len(a), a.shape[1] + 1), dtype=kind)
            for c in range(a.shape[1]):
                sums[:, c + 1] = (sums[:, c] + product[:, c]).astype(kind)
            a, b, product = sums[:, :-1], product, sums[:, 1:]
        words = [bits(x.reshape(-1).view(word).astype(np.int64), width) for x in (a, b, product)]
        return LaneRun({"a": words[0], "b": words[1]}, {"y": every(words[2])}, a.size)

    return run


def lanes_of(p: dict[str, int]) -> list[Lane]:
    """All lanes for the parameters of a head; a network with signed codes is measured without OFF neurons too."""
    wide = p["CHANNELS"]
    dot = {"CODE_BITS": p["CODE_BITS"], "SCORE_BITS": score_bits(p), "IS_SIGNED": p["SIGNED_CODES"], "CHANNELS": wide}
    bytes_ = {"CODE_BITS": EIGHT, "SCORE_BITS": int8_bits(p), "IS_SIGNED": 1, "CHANNELS": wide}
    few = {"CHANNELS": FEW}
    weights = {"AFFINITY_BITS": score_bits(p) - p["SIGNED_CODES"], "SUM_BITS": dot_sum_bits(p)}
    int8_value = {"AFFINITY_BITS": EIGHT, "VALUE_BITS": EIGHT, "SUM_BITS": int8_sum_bits(p), "IS_SIGNED": 1}
    products = integers_run(np.multiply, 8, 16)
    half, single = {"EXPONENT_BITS": 5, "FRACTION_BITS": 10}, {"EXPONENT_BITS": 8, "FRACTION_BITS": 23}
    return [
        Lane("minimum", "score_minimum", "pair", "l1 score by minimum", codes_run),
        Lane("difference", "score_difference", "pair", "l1 score by absolute difference", codes_run),
        Lane("temporal", "score_temporal", "pair", "l1 score from spikes, XOR and popcount", temporal_run),
        Lane("dot", "dot_score", "pair", "dot product of the same codes", dot_run, dot),
        Lane("dot int8", "dot_score", "pair", "dot product of int8", int8_run, bytes_),
        Lane("code sum", "code_sum", "token", "sum of a token's codes, for the score by minimum", code_sum_run),
        Lane("fired", "fired_state", "token", "which neurons have fired, for the temporal score", fired_run),
        Lane("lookup", "affinity_lookup", "pair", "affinity by table", lookup_run),
        *(
            [
                Lane("leak", "leak_register", "step of a head", "one step of the leaking membrane", leak_run),
                Lane("latch", "leak_latch", "pair", "affinity by leak: a pair's wait through all steps", latch_run),
            ]
            if p["LEAK"]
            else []
        ),
        Lane("row sum", "row_sum", "pair", "row sum", row_sum_run),
        Lane("exponent", "row_exponent", "row", "power of two of a row", row_exponent_run),
        Lane("value", "value_sum", "pair, channel", "values by codes", value_codes_run, few),
        Lane("events", "value_events", "pair, channel", "values by events", value_events_run, {"CHANNELS": 1}),
        Lane("value dot", "value_sum", "pair, channel", "values by dot products", value_dot_run, few | weights),
        Lane("value int8", "value_sum", "pair, channel", "values of int8", value_int8_run, few | int8_value),
        Lane("readout", "readout", "row, channel", "first spikes of the sums", readout_run, few),
        Lane("sequencer", "sequencer", "row", "control of a row", sequencer_run),
        Lane("add 8", "add_integer", "operation", "8-bit addition", integers_run(np.add, 8, 8), {"BITS": 8}),
        Lane("add 32", "add_integer", "operation", "32-bit addition", integers_run(np.add, 32, 32), {"BITS": 32}),
        Lane("multiply 8", "multiply_integer", "operation", "8-bit product", products, {"BITS": 8}),
        Lane("multiply fp16", "multiply_float", "operation", "FP16 product", floats_run(np.float16, True), half),
        Lane("add fp16", "add_float", "operation", "FP16 addition", floats_run(np.float16, False), half),
        Lane("multiply fp32", "multiply_float", "operation", "FP32 product", floats_run(np.float32, True), single),
        Lane("add fp32", "add_float", "operation", "FP32 addition", floats_run(np.float32, False), single),
    ]

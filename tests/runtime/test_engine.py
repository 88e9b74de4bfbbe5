"""The native engine equals the integer model at every measuring point, on every instruction set."""

from __future__ import annotations

import ctypes
import dataclasses
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.load import beside_load
from benchmarks.synthetic import random_network, with_activity
from lapis import native
from lapis.config import CodingByPoint, MinCodeByPoint
from lapis.deploy import arithmetic, integer
from lapis.deploy.network import Layer, Network
from lapis.deploy.thresholds import Grid, gelu_ladder
from lapis.errors import LapisError
from lapis.runtime import engine as engine_module
from lapis.runtime.engine import STAGES, Engine
from lapis.trace import POINTS
from tests.networks import images_for, small_config, small_model, wide_network
from tests.test_executors import SHAPES

# The forms of a layer's weights, as in csrc/engine/pack.h.
DENSE, EVENTS, PACKED6 = 1, 2, 4
SIGNED_INPUTS: dict[str, Any] = {"attention_in": "signed", "readout": "signed", "mlp_in": "signed"}


def assert_equal_everywhere(network: Network, engine: Engine, images: npt.NDArray[np.uint8]) -> None:
    want = integer.watch(network, images)
    scores, trace = engine.watch(images)
    assert set(trace) == set(want.trace)
    for key in want.trace:
        assert (trace[key] == want.trace[key]).all(), key
    assert (scores == want.logits).all()
    assert (engine.run(images) == scores).all()


@pytest.mark.parametrize("threads", [2, 3, 5])
@pytest.mark.parametrize("batch", [1, 2, 11, 23])
def test_threads_and_batches_change_nothing(isa: str, threads: int, batch: int) -> None:
    network = wide_network(depth=1, width=24, heads=3)
    assert_equal_everywhere(network, Engine(network, threads), images_for(network, batch))


@pytest.mark.parametrize(
    "fields",
    [
        {"width": 48},
        {"width": 132, "heads": 2},
        {"weight_bits": 8, "window": 63, "width": 144},
        {"weight_bits": 8, "window": 63, "width": 144, "coding": CodingByPoint(**SIGNED_INPUTS)},
        {"window": 1},
        {"min_code": MinCodeByPoint.all(3), "coding": CodingByPoint(**SIGNED_INPUTS)},
    ],
    ids=["plain", "wide", "full_segments", "full_signed_segments", "window_one", "signed_with_deadlines"],
)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.31, 1.0])
def test_layers_driven_by_events_equal_the_integer_model(isa: str, fields: dict[str, Any], share: float) -> None:
    network = wide_network(depth=2, **fields)
    images = images_for(network, 3)
    sparse = with_activity(network, dict.fromkeys(POINTS, share), images) if 0 < share < 1 else network
    # A record that promises silence makes every layer event-driven, even where most neurons then fire.
    promised = _replace(sparse, activity=dict.fromkeys(POINTS, (share,) * 2))
    assert_equal_everywhere(promised, Engine(promised, 2), images)
    assert_equal_everywhere(promised, Engine(promised, 1, low_memory=True), images)


@pytest.mark.parametrize("name", SHAPES)
def test_low_memory_changes_no_answer(isa: str, name: str) -> None:
    network = wide_network(seed=len(name), **SHAPES[name])
    assert_equal_everywhere(network, Engine(network, 2, low_memory=True), images_for(network, 2))


def test_low_memory_keeps_six_bit_weights_in_six_bits(isa: str) -> None:
    # A multiple of every panel, so that nothing is padded.
    network = wide_network(depth=1, width=128, heads=2)
    layers = sum(getattr(network.blocks[0], name).weight.size for name in ("qkv", "proj", "fc1", "fc2"))
    second = network.blocks[0].fc2.weight.size
    usual, low = Engine(network).memory()[0], Engine(network, low_memory=True).memory()[0]
    # Without a record the second MLP layer has two forms, of which one is left. Others than AVX read bytes only.
    assert usual - low == (layers // 4 + second if isa.startswith("avx") else 0)


def test_a_record_decides_for_each_layer_which_form_is_kept(isa: str) -> None:
    network = wide_network(depth=2, width=96)

    def weights(share: float | None) -> int:
        known = {} if share is None else dict.fromkeys(POINTS, (share, 1.0))
        return Engine(_replace(network, activity=known)).memory()[0]

    layers = sum(getattr(network.blocks[0], name).weight.size for name in ("qkv", "proj", "fc1", "fc2"))
    by_events = isa.startswith("avx")
    # Only the first block is recorded as quiet. Its layers have one form, and need tables for gathering their events.
    assert weights(0.1) - weights(1.0) in (range(4 * 2048, layers) if by_events else [0])
    assert weights(0.9) == weights(1.0)
    # Narrow layers must be quieter than wide ones.
    assert (len({weights(share / 20) for share in range(21)}) > 2) == by_events
    # Without a record, the layers behind GELU keep both forms, and each run counts.
    assert (weights(None) - weights(1.0) > layers // 4) == by_events


def test_extreme_images_equal_the_integer_model(isa: str) -> None:
    network = wide_network()
    black = images_for(network, 1) * 0
    assert_equal_everywhere(network, Engine(network), np.concatenate([black, black + 255]))


def test_a_stream_at_its_limits_stays_there_as_in_the_integer_model(isa: str) -> None:
    network = wide_network(depth=1)
    limit = arithmetic.STREAM_LIMIT
    position = np.where(np.arange(network.position.size) % 2, limit, -limit).reshape(network.position.shape)
    pinned = _replace(network, position=position.astype(np.int32), patch_shift=np.zeros(48, dtype=np.uint8))
    assert_equal_everywhere(pinned, Engine(pinned), images_for(pinned, 2))


def test_head_weights_of_every_size_are_summed_exactly(isa: str) -> None:
    network = wide_network(depth=1, width=40, heads=2)
    for min_code in (-32767, -32768):
        head = np.full(network.head_weight.shape, min_code, dtype=np.int16)
        head[:, 1::3] = 32767
        extreme = _replace(network, head_weight=head)
        assert_equal_everywhere(extreme, Engine(extreme), images_for(extreme, 2))


def test_a_calibrated_model_runs_as_its_integer_model() -> None:
    from lapis.convert.fold import from_model

    if not native.available():
        pytest.skip(f"no native kernels: {native.describe()}")
    for coding in (CodingByPoint(), CodingByPoint.all("offset"), CodingByPoint.all("signed")):
        config = wide_network(coding=coding).config
        model, images = small_model(config)
        network = from_model(model)
        assert_equal_everywhere(network, Engine(network, 2), images)


def test_engines_side_by_side_and_in_threads_do_not_disturb_each_other() -> None:
    if not native.available():
        pytest.skip(f"no native kernels: {native.describe()}")
    networks = [wide_network(seed=seed, width=24 + 6 * seed) for seed in range(4)]
    images = [images_for(network, 3, seed) for seed, network in enumerate(networks)]
    want = [integer.run(network, pixels) for network, pixels in zip(networks, images, strict=True)]
    engines = [Engine(network, 1 + index % 2) for index, network in enumerate(networks)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            found = pool.map(lambda pair: pair[0].run(pair[1]), zip(engines, images, strict=True))
            for scores, logits in zip(found, want, strict=True):
                assert (scores == logits).all()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system does not tell the cores of a thread")
def test_threads_stay_on_the_cores_of_the_caller_and_leave_them_as_they_were() -> None:
    if not native.available():
        pytest.skip(f"no native kernels: {native.describe()}")
    network, cores = wide_network(), os.sched_getaffinity(0)
    images = images_for(network, 2)
    want, engine = integer.run(network, images), Engine(network, 3)
    try:
        for allowed in (cores, {max(cores)}):
            os.sched_setaffinity(0, allowed)
            with beside_load(1.0):
                assert all((engine.run(images[: 1 + i % 2]) == want[: 1 + i % 2]).all() for i in range(50))
            assert os.sched_getaffinity(0) == allowed
    finally:
        os.sched_setaffinity(0, cores)
        engine.close()


def test_a_closed_engine_refuses_to_run() -> None:
    if not native.available():
        pytest.skip(f"no native kernels: {native.describe()}")
    network = wide_network()
    engine = Engine(network)
    engine.close()
    with pytest.raises(LapisError, match="closed"):
        engine.run(images_for(network, 1))


def test_the_profile_names_every_stage_and_memory_is_told() -> None:
    if not native.available():
        pytest.skip(f"no native kernels: {native.describe()}")
    network = wide_network()
    engine = Engine(network)
    spent = engine.profile(images_for(network, 4))
    assert tuple(spent) == STAGES
    assert all(value > 0 for value in spent.values())
    weights, working = engine.memory()
    assert weights > sum(layer.weight.size for block in network.blocks for layer in (block.qkv, block.fc1, block.fc2))
    assert working > 0


def test_too_many_tokens_are_refused_with_a_way_out_that_works() -> None:
    config = small_config(image_size=128, window=63, coding=CodingByPoint(v="signed"))
    with pytest.raises(LapisError, match="use at most 520 tokens"):
        Engine(random_network(config))


@pytest.mark.skipif(not native.available(), reason="no native kernels")
@pytest.mark.parametrize("name", ["POINTS", "STAGES"])
def test_an_engine_that_counts_by_other_names_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = getattr(engine_module, name)
    monkeypatch.setattr(engine_module, name, (names[1], names[0], *names[2:]))
    with pytest.raises(LapisError, match="rebuild with `make native`"):
        Engine(wide_network())


@pytest.mark.parametrize("threads", [0, -1, 257, 1.5, True])
def test_bad_thread_counts_are_refused(threads: Any) -> None:
    with pytest.raises(LapisError, match="threads"):
        Engine(wide_network(), threads)


@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (6, 4, 16), (7, 3, 17), (5, 65, 31), (13, 384, 33), (25, 130, 96), (12, 1537, 40)]
)
@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize(("low", "high", "largest"), [(0, 15, 31), (-15, 15, 31), (0, 63, 127), (-63, 63, 127)])
def test_a_linear_layer_equals_its_formula(
    isa: str, shape: tuple[int, int, int], kind: int, low: int, high: int, largest: int
) -> None:
    layer, codes = extreme_layer(shape, low, high, largest)
    codes[0] = high
    for form in (DENSE, EVENTS, DENSE | PACKED6, EVENTS | PACKED6):
        assert (linear(layer, codes, low, high, kind, form) == expected(layer, codes, low, high, kind)).all(), form
    for min_code in (2, high):
        found = linear(layer, codes, low, high, kind, min_code=min_code)
        assert (found == expected(layer, codes, low, high, kind, min_code)).all(), min_code


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 1.0])
@pytest.mark.parametrize("shape", [(1, 1, 1), (97, 33, 17), (7, 383, 64), (5, 385, 65), (3, 1537, 130)])
@pytest.mark.parametrize(("low", "high", "largest"), [(0, 15, 31), (-15, 15, 31), (0, 63, 127), (-63, 63, 127)])
def test_a_layer_driven_by_events_equals_its_formula_at_every_activity(
    isa: str, shape: tuple[int, int, int], share: float, low: int, high: int, largest: int
) -> None:
    layer, codes = extreme_layer(shape, low, high, largest)
    # As strong as they can be, so that 16-bit sums fill soonest; the first row fires with one sign, the last with both.
    codes = np.where(codes < 0, low, high).astype(np.int8)
    codes[0] = low or high
    codes[np.random.default_rng(1).random(codes.shape) >= share] = 0
    for kind in (0, 1, 2):
        want = expected(layer, codes, low, high, kind)
        for form in (EVENTS, EVENTS | PACKED6):
            assert (linear(layer, codes, low, high, kind, form) == want).all(), (kind, form)


def extreme_layer(shape: tuple[int, int, int], low: int, high: int, largest: int) -> tuple[Layer, npt.NDArray[np.int8]]:
    """A random layer whose first outputs reach the bound of 16-bit sums from above and from below, and codes for it."""
    rows, inputs, outputs = shape
    generator = np.random.default_rng(rows + inputs)
    weight = generator.integers(-largest, largest + 1, (outputs, inputs), dtype=np.int8)
    weight[0] = largest
    weight[-1] = -largest
    codes = generator.integers(low, high + 1, (rows, inputs), dtype=np.int8)
    spread = largest * max(high, -low) * inputs**0.5 / 3
    scale = generator.uniform(0.2, 2.0, outputs).astype(np.float32) * np.float32(high / spread)
    return Layer(weight, scale, generator.standard_normal(outputs).astype(np.float32)), codes


def expected(
    layer: Layer, codes: npt.NDArray[np.int8], low: int, high: int, kind: int, min_code: int = 1
) -> npt.NDArray[Any]:
    total = codes.astype(np.int64) @ layer.weight.astype(np.int64).T
    pre = arithmetic.affine(total, layer.scale, layer.shift)
    if kind == 0:
        return arithmetic.floor_codes(pre, low, high, min_code).astype(np.int64) - low
    if kind == 1:
        return arithmetic.ladder_codes(pre, *ladder(low, high), low, min_code).astype(np.int64) - low
    return arithmetic.add_to_stream(start(len(codes), len(layer.scale)), pre)


def ladder(low: int, high: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    # Steps so small that several levels lie below zero, where GELU falls and rises again.
    return gelu_ladder(Grid(3.0 / high if low == 0 else 0.02, -0.12, low, high))


def start(rows: int, outputs: int) -> npt.NDArray[np.int32]:
    limit = arithmetic.STREAM_LIMIT
    return np.linspace(-limit, limit - 1, rows * outputs).astype(np.int32).reshape(rows, outputs)


def linear(
    layer: Layer, codes: npt.NDArray[np.int8], low: int, high: int, kind: int, form: int = DENSE, min_code: int = 1
) -> npt.NDArray[Any]:
    """The layer by itself, through the library's own entry."""
    rows, outputs = len(codes), len(layer.scale)
    rise, fall = ladder(low, high)
    shifted = np.ascontiguousarray(codes.astype(np.int16) - low, dtype=np.uint8)
    out, stream = np.zeros((rows, outputs), dtype=np.uint8), start(rows, outputs)
    arrays = [
        np.ascontiguousarray(getattr(layer, name), dtype=kind)
        for name, kind in (("weight", np.int8), ("scale", np.float32), ("shift", np.float32))
    ]
    pointer, i32, i64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
    native.library().lapis_engine_linear.argtypes = [
        *[pointer] * 3, *[i64] * 3, pointer, *[i32] * 7, pointer, pointer, i32, pointer, pointer, i32, pointer,
    ]  # fmt: skip
    native.call(
        "lapis_engine_linear", *arrays, rows, codes.shape[1], outputs, shifted, low, high, kind, form, low, high,
        min_code, rise, fall, arithmetic.STREAM_LIMIT.bit_length() - 1, out, stream, 1, None,
    )  # fmt: skip
    return stream if kind == 2 else out


def _replace(record: Any, **changes: Any) -> Any:
    return dataclasses.replace(record, **changes)


def team_sizes(nanoseconds: npt.NDArray[np.float64], waited: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
    """The threads that would share each run, if a run by s threads took nanoseconds[run, s-1] and waited that share."""
    runs, threads = nanoseconds.shape
    sizes, pointer = np.empty(runs, dtype=np.int32), ctypes.c_void_p
    native.library().lapis_engine_pace.argtypes = [ctypes.c_int32, ctypes.c_int64, pointer, pointer, pointer]
    times, waits = (np.ascontiguousarray(table, dtype=np.float64) for table in (nanoseconds, waited))
    native.call("lapis_engine_pace", threads, runs, times, waits, sizes)
    return sizes


def _sizes(runs: int, milliseconds: tuple[float, ...], waited: tuple[float, ...]) -> list[int]:
    times, waits = (np.tile(np.array(row, dtype=np.float64), (runs, 1)) for row in (milliseconds, waited))
    return [int(size) for size in team_sizes(times, waits)]


def test_on_a_quiet_machine_every_thread_takes_part_in_every_run() -> None:
    # One thread would be faster, as for a tiny network, but nobody waits: nothing is tried.
    assert set(_sizes(500, (1.0, 2.0), (0.0, 0.1))) == {2}


def test_beside_a_taken_core_a_team_shrinks_to_the_size_that_is_faster() -> None:
    sizes = _sizes(500, (40.0, 56.0), (0.0, 0.4))
    assert sizes[0] == 2
    assert sizes[20:60] == [1] * 40
    assert sizes.count(2) < 50
    assert _sizes(500, (90.0, 50.0, 34.0, 80.0), (0.0, 0.0, 0.0, 0.5)).count(3) > 400


def test_a_size_that_is_far_faster_is_taken_after_two_runs() -> None:
    assert _sizes(60, (4.0, 30.0), (0.0, 0.9)).count(2) <= 4


def test_a_team_that_waits_but_is_faster_stays() -> None:
    assert _sizes(500, (40.0, 30.0), (0.0, 0.4)).count(1) < 20


def test_one_lucky_run_decides_nothing() -> None:
    noise = np.random.default_rng(0).lognormal(0.0, 0.5, (2000, 2))
    sizes = team_sizes(np.array([40.0, 28.0]) * noise, np.full((2000, 2), 0.4))
    assert (sizes == 2).mean() > 0.9


def test_what_did_not_help_is_tried_more_rarely() -> None:
    sizes = np.array(_sizes(4000, (1.4, 5.0), (0.0, 0.4)))
    assert (sizes == 2).sum() < 40
    assert (sizes[-1200:] == 2).any()


def test_a_team_grows_again_when_the_core_is_free() -> None:
    taken = np.tile([40.0, 56.0], (200, 1))
    free = np.tile([40.0, 21.0], (200, 1))
    waits = np.concatenate([np.tile([0.0, 0.4], (200, 1)), np.zeros((200, 2))])
    sizes = team_sizes(np.concatenate([taken, free]), waits)
    assert sizes[199] == 1
    assert (sizes[300:] == 2).all()


def test_one_thread_is_always_one() -> None:
    assert set(_sizes(200, (5.0,), (0.9,))) == {1}

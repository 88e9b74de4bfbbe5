"""The simulator in C equals the one in numpy: every spike, sum, code, count and answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lapis import native
from lapis.config import CodingByPoint, LapisConfig, MinCodeByPoint
from lapis.convert.fold import from_model
from lapis.deploy import simulate_native
from lapis.deploy.simulate import (
    Crossing,
    Simulated,
    Simulator,
    Spikes,
    fire,
    integrate,
    leak_affinities,
    mix,
    relate,
)
from lapis.deploy.simulate_native import NativeSimulator, fast_simulator
from lapis.errors import LapisError
from tests.networks import configs, images_for, small_model, wide_network

pytestmark = pytest.mark.skipif(not native.available(), reason=f"no native kernels: {native.describe()}")

# Rows beside every width of a vector, and one neuron.
SIZES = st.sampled_from([1, 2, 3, 7, 8, 9, 16, 17, 33])
SEEDS = st.integers(0, 1 << 16)


def _spikes(seed: int, steps: int, *shape: int) -> Spikes:
    """A train in which a neuron spikes at most once; some never do."""
    when = np.random.default_rng(seed).integers(0, steps + 2, shape)
    return np.asarray(np.arange(steps).reshape(steps, *[1] * len(shape)) == when)


def _assert_equal(ours: Simulated, defining: Simulated) -> None:
    assert (ours.logits == defining.logits).all()
    assert set(ours.trace) == set(defining.trace)
    for key in defining.trace:
        assert ours.trace[key].dtype == defining.trace[key].dtype
        assert (ours.trace[key] == defining.trace[key]).all(), key
    assert ours.events == defining.events


@given(config=configs(), seed=SEEDS, threads=st.integers(1, 3))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_spikes_in_c_are_the_spikes_of_numpy(config: LapisConfig, seed: int, threads: int) -> None:
    model, images = small_model(config, seed)
    network = from_model(model)
    _assert_equal(NativeSimulator(network, threads).run(images), Simulator(network).run(images))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"relation": "table"},
        {"relation": "table", "coding": CodingByPoint.all("signed"), "min_code": MinCodeByPoint.all(4)},
        {"style": "beit", "window": 20, "coding": CodingByPoint.all("signed"), "min_code": MinCodeByPoint(qk=7, v=2)},
        {"weight_bits": 8, "window": 63, "coding": CodingByPoint.all("signed"), "depth": 1},
        {"width": 17, "heads": 1, "image_size": 4, "classes": 1},
    ],
)
def test_wide_networks_of_every_relation_spike_alike(changes: dict[str, Any]) -> None:
    network = wide_network(**changes)
    images = images_for(network, 2)
    _assert_equal(NativeSimulator(network, 2).run(images), Simulator(network).run(images))


@given(rows=SIZES, neurons=SIZES, kind=st.sampled_from(["shared", "own", "by_row"]), window=st.integers(1, 20),
       signed=st.booleans(), falls=st.booleans(), seed=SEEDS, data=st.data())  # fmt: skip
def test_every_kind_of_threshold_is_crossed_at_the_same_step(
    rows: int, neurons: int, kind: str, window: int, signed: bool, falls: bool, seed: int, data: st.DataObject
) -> None:
    min_code, low = data.draw(st.integers(1, window)), -window if signed else 0
    generator = np.random.default_rng(seed)
    shape = {"shared": (1, 1), "own": (1, neurons), "by_row": (rows, 1)}[kind]
    # Thresholds in no order at all: the first that is reached counts.
    rise, fall = generator.integers(-5, 6, (2, *shape, window - low))
    crossing = Crossing(generator.integers(-6, 7, (rows, neurons)), low, rise, fall if falls else None)
    spikes, codes = simulate_native.fire(crossing, window, signed, min_code)
    assert (spikes == fire(crossing, window, signed, min_code)).all()
    parts = (np.arange(window, min_code - 1, -1) @ spikes.reshape(len(spikes), -1)).reshape(rows, -1)
    assert (codes == (parts[:, :neurons] - parts[:, neurons:] if signed else parts)).all()


@given(steps=st.integers(1, 15), targets=SIZES, inputs=SIZES, outputs=SIZES, signed=st.booleans(), seed=SEEDS,
       min_code=st.integers(1, 5), threads=st.integers(1, 3))  # fmt: skip
def test_membranes_in_c_hold_what_those_of_numpy_hold(
    steps: int, targets: int, inputs: int, outputs: int, signed: bool, seed: int, min_code: int, threads: int
) -> None:
    spikes = _spikes(seed, steps, targets, inputs * (1 + signed))
    weight = np.random.default_rng(seed).integers(-128, 128, (inputs, outputs), dtype=np.int8)
    synapses = np.concatenate([weight, -weight.astype(np.int32)]) if signed else weight.astype(np.int32)
    voltage, crossed = simulate_native.integrate(spikes, weight, min_code, threads)
    expected, expected_crossed = integrate(spikes, synapses, min_code)
    assert (voltage == expected).all()
    assert crossed == expected_crossed


@pytest.mark.parametrize("weight", [-128, 127])
@pytest.mark.parametrize("off", [False, True])
def test_a_thousand_spikes_of_the_largest_weight_in_one_step_do_not_overflow(weight: int, off: bool) -> None:
    spikes = np.zeros((2, 1, 2000), dtype=bool)
    spikes[0, 0, 1000 * off : 1000 + 1000 * off] = True
    voltage, _ = simulate_native.integrate(spikes, np.full((1000, 9), weight, dtype=np.int8))
    assert (voltage == (-2 if off else 2) * 1000 * weight).all()


@given(steps=st.integers(1, 15), heads=st.integers(1, 3), rows=SIZES, keys=SIZES, channels=SIZES, seed=SEEDS,
       min_code=st.integers(1, 5))  # fmt: skip
def test_counters_in_c_run_as_those_of_numpy(
    steps: int, heads: int, rows: int, keys: int, channels: int, seed: int, min_code: int
) -> None:
    q, k = _spikes(seed, steps, heads, rows, channels), _spikes(seed + 1, steps, heads, keys, channels)
    distance, crossed = simulate_native.relate(q, k, min_code, 2)
    expected, expected_crossed = relate(q, k, min_code)
    assert (distance == expected).all()
    assert crossed == expected_crossed


@given(heads=st.integers(1, 3), rows=SIZES, keys=SIZES, seed=SEEDS, falls=st.integers(0, 5), bits=st.integers(1, 15))
def test_membranes_in_c_are_read_as_those_of_numpy(
    heads: int, rows: int, keys: int, seed: int, falls: int, bits: int
) -> None:
    generator = np.random.default_rng(seed)
    distance = generator.integers(0, 50, (heads, rows, keys))
    mantissa = generator.integers(1 << 31, 1 << 32, (heads, 50), dtype=np.uint64)
    exponent = np.cumsum(generator.integers(0, falls + 1, (heads, 50)), axis=1)
    affinity, mass, steps = simulate_native.leak_affinities(distance, mantissa, exponent, bits)
    expected = leak_affinities(distance, zip(mantissa.T, exponent.T, strict=True), bits)
    assert (affinity == expected[0]).all()
    assert (mass == expected[1]).all()
    assert steps == expected[2]


@given(steps=st.integers(1, 15), heads=st.integers(1, 3), rows=SIZES, keys=SIZES, channels=SIZES, signed=st.booleans(),
       seed=SEEDS, min_code=st.integers(1, 5))  # fmt: skip
def test_values_mix_in_c_as_in_numpy(
    steps: int, heads: int, rows: int, keys: int, channels: int, signed: bool, seed: int, min_code: int
) -> None:
    spikes = _spikes(seed, steps, heads, keys, channels * (1 + signed))
    affinity = np.random.default_rng(seed).integers(0, 32768, (heads, rows, keys))
    voltage, crossed = simulate_native.mix(spikes, affinity, signed, min_code, 2)
    expected, expected_crossed = mix(spikes, affinity, signed, min_code)
    assert (voltage == expected).all()
    assert crossed == expected_crossed


def test_without_the_library_numpy_simulates() -> None:
    network = wide_network()
    assert type(fast_simulator(network)) is NativeSimulator
    with native.force(native.NONE):
        assert type(fast_simulator(network)) is Simulator


@pytest.mark.parametrize("distance", [-1, 5])
def test_a_distance_without_a_membrane_is_refused(distance: int) -> None:
    membranes = np.full((1, 5), 1 << 31), np.zeros((1, 5), dtype=np.int64)
    with pytest.raises(LapisError, match="outside the affinity table"):
        simulate_native.leak_affinities(np.array([[[0, distance]]]), *membranes)


@pytest.mark.parametrize("bits", [0, 16])
def test_a_width_that_no_affinity_has_is_refused(bits: int) -> None:
    membranes = np.full((1, 5), 1 << 31), np.zeros((1, 5), dtype=np.int64)
    with pytest.raises(LapisError, match="refused by the native library"):
        simulate_native.leak_affinities(np.zeros((1, 1, 1)), *membranes, bits)


def test_arrays_that_do_not_fit_are_refused() -> None:
    with pytest.raises(LapisError, match="refused by the native library"):
        simulate_native.integrate(np.zeros((2, 1, 5), dtype=bool), np.zeros((3, 4), dtype=np.int8))
    with pytest.raises(LapisError, match="cannot be compared"):
        simulate_native.relate(np.zeros((2, 1, 3, 4), dtype=bool), np.zeros((2, 1, 3, 5), dtype=bool))
    with pytest.raises(LapisError, match="do not fit"):
        simulate_native.fire(Crossing(np.zeros((2, 3)), 0, np.zeros((1, 3, 7))), 8, False)

"""The spiking network answers as the integer model does, everywhere and exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lapis.config import LapisConfig
from lapis.convert.fold import from_model
from lapis.deploy import arithmetic, integer, leak
from lapis.deploy.simulate import fire, integrate, leak_affinities, mix, relate, simulate
from lapis.energy.counts import OPERATORS, WINDOWS, deliveries
from lapis.ops.distance.reference import l1_distance
from lapis.spikes import encode, split_on_off
from lapis.trace import POINTS, Tally
from tests.networks import configs, small_config, small_model


@given(config=configs(), seed=st.integers(0, 1 << 16))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_spikes_answer_as_integers_do(config: LapisConfig, seed: int) -> None:
    model, images = small_model(config, seed)
    network = from_model(model)
    logits, trace = integer.watch(network, images)
    spiking = simulate(network, images)
    assert (spiking.logits == logits).all()
    assert len(spiking.trace.codes) == len(trace.codes) == config.depth * len(POINTS)
    for key in trace:
        assert (spiking.trace[key] == trace[key]).all(), key


@given(config=configs(), seed=st.integers(0, 1 << 16))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_events_are_what_the_energy_estimate_counts(config: LapisConfig, seed: int) -> None:
    model, images = small_model(config, seed)
    spiking = simulate(from_model(model), images)
    tally = Tally()
    tally.add(spiking.trace)
    assert spiking.events.spikes == tally.fired
    assert spiking.events.operations == deliveries(config, tally)
    assert {operator for _, operator in spiking.events.operations} == set(OPERATORS)
    assert spiking.events.window_steps <= len(WINDOWS) * config.depth * config.window
    assert spiking.events.latency >= spiking.events.window_steps


@pytest.mark.parametrize("level", [0, 255])
def test_a_blank_image_runs_as_spikes_too(level: int) -> None:
    config = small_config(depth=1)
    network = from_model(small_model(config)[0])
    blank = np.full((1, 8, 8, 3), level, dtype=np.uint8)
    assert (simulate(network, blank).logits == integer.run(network, blank)).all()


codes = st.integers(1, 20).flatmap(
    lambda window: st.tuples(
        st.just(window), st.lists(st.lists(st.integers(0, window), min_size=3, max_size=3), min_size=2, max_size=2)
    )
)


@given(codes, st.integers(0, 1 << 16))
def test_a_membrane_holds_the_sum_of_weights_times_codes(case: tuple[int, list[list[int]]], seed: int) -> None:
    window, z = case[0], np.array(case[1])
    weight = np.random.default_rng(seed).integers(-31, 32, (3, 4)).astype(np.int32)
    voltage, crossed = integrate(encode(z, window), weight)
    assert (voltage == z @ weight).all()
    assert crossed == 4 * np.count_nonzero(z)


@given(window=st.integers(1, 20), pre=st.lists(st.floats(-40, 40), min_size=1, max_size=9), signed=st.booleans())
def test_a_falling_threshold_is_the_quantizer(window: int, pre: list[float], signed: bool) -> None:
    values = np.array([pre])
    spikes = fire(lambda level: values >= level, window, signed)
    codes = arithmetic.floor_codes(values.astype(np.float64), -window if signed else 0, window)
    assert (spikes == encode(split_on_off(codes, window) if signed else codes, window)).all()
    assert spikes.sum(axis=0).max() <= 1


@given(codes, st.integers(1, 4))
def test_counters_between_spikes_are_the_distance_of_codes(case: tuple[int, list[list[int]]], keys: int) -> None:
    window, z = case[0], np.array(case[1])
    q = z[None]
    k = np.stack([np.roll(z[0], shift) for shift in range(keys)])[None]
    distance, crossed = relate(encode(q, window), encode(k, window))
    assert (distance == l1_distance(q, k)).all()
    assert crossed == np.count_nonzero(q) * k.shape[1] + np.count_nonzero(k) * q.shape[1]


@given(st.floats(0.1, 100.0), st.integers(0, 1 << 16), st.integers(1, 15))
def test_membranes_that_leak_one_by_one_read_as_the_table(tau: float, seed: int, bits: int) -> None:
    distance = np.random.default_rng(seed).integers(0, 120, (2, 3, 4))
    mantissa, exponent = leak.leak_factor([tau, 2 * tau])
    affinity, mass, steps = leak_affinities(distance, leak.trajectory(mantissa, exponent), bits)
    u, e = leak.leak_table(mantissa, exponent, 120)
    head = np.arange(2)[:, None, None]
    gain = e[head, distance.min(axis=-1, keepdims=True)]
    assert (affinity == leak.read(u[head, distance], e[head, distance], gain, bits)).all()
    assert (mass == affinity.sum(axis=-1)).all()
    assert steps == distance.max()


@given(codes, st.booleans())
def test_mixed_value_spikes_are_affinities_times_codes(case: tuple[int, list[list[int]]], signed: bool) -> None:
    window, z = case[0], np.array(case[1])[None]
    if signed:
        z[..., ::2] *= -1
    affinity = np.arange(1, 7).reshape(1, 3, 2)
    spikes = encode(split_on_off(z, window) if signed else z, window)
    voltage, crossed = mix(spikes, affinity, signed)
    assert (voltage == (affinity @ z).transpose(0, 2, 1)).all()
    assert crossed == 3 * np.count_nonzero(z)

"""Time-to-first-spike coding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lapis.errors import LapisError
from lapis.ops.distance.reference import l1_distance
from lapis.spikes import decode, encode, first_spike, latency, split_on_off

Codes = tuple[np.ndarray, int]


@st.composite
def codes(draw: st.DrawFn) -> Codes:
    window = draw(st.integers(1, 63))
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=6))
    return draw(hnp.arrays(np.int64, shape, elements=st.integers(0, window))), window


@given(codes())
def test_every_positive_code_is_one_spike_and_zero_is_silence(given_codes: Codes) -> None:
    z, window = given_codes
    spikes = encode(z, window)
    assert spikes.shape == (window, *z.shape)
    assert (spikes.sum(axis=0) == (z > 0)).all()


@given(codes())
def test_first_spike_of_an_encoded_code_is_its_latency(given_codes: Codes) -> None:
    z, window = given_codes
    times = first_spike(encode(z, window))
    assert (times == latency(z, window)).all()
    assert (decode(times, window) == z).all()


@given(codes())
def test_larger_codes_fire_earlier(given_codes: Codes) -> None:
    z, window = given_codes
    order = np.sort(z, axis=None)
    assert (np.diff(latency(order, window)) <= 0).all()


def test_first_spike_takes_the_earliest_of_several() -> None:
    train = np.array([[0, 0, 0], [1, 0, 0], [1, 0, 1]])
    assert first_spike(train).tolist() == [1, 3, 2]


@given(codes())
def test_on_and_off_neurons_keep_the_signed_distance(given_codes: Codes) -> None:
    z, window = given_codes
    signs = np.where(np.arange(z.size).reshape(z.shape) % 2, 1, -1)
    q, k = (z * signs).reshape(1, -1), (z[::-1] * signs).reshape(1, -1)
    split = l1_distance(split_on_off(q, window), split_on_off(k, window))
    assert split == np.abs(q - k).sum()
    on, off = np.split(split_on_off(q, window), 2, axis=-1)
    assert not ((on > 0) & (off > 0)).any()


@pytest.mark.parametrize("bad", [np.zeros((0, 3)), np.float64(1.0), np.full((2, 2), 2)])
def test_what_is_no_spike_train_is_refused(bad: np.ndarray) -> None:
    with pytest.raises(LapisError):
        first_spike(bad)


def test_signed_codes_outside_the_window_are_refused() -> None:
    with pytest.raises(LapisError, match=r"-15\.\.15"):
        split_on_off(np.array([16]), 15)

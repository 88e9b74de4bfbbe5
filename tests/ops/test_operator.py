"""The operator's laws, on the numpy reference: docs/paper.md names each."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lapis.codes import pow2_exponent
from lapis.config import RowScale
from lapis.errors import LapisError
from lapis.ops.attention.reference import attention, attention_spikes, readout, weights
from lapis.ops.distance.reference import hamming_distance, l1_distance, squared_distance
from lapis.ops.row_scale.reference import (
    affinity,
    exact_rows,
    pow2_rows,
    row_exponent,
)
from lapis.spikes import encode, first_spike, latency

Int = npt.NDArray[np.int64]

# The error of ten thousand float64 multiplications, relative: 10**4 half units in the last place.
LEAK_RTOL = 1e-11

taus = st.floats(0.05, 500.0)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Int, Int, int]:
    """Query and key codes (N, C), (M, C) and their window."""
    window = draw(st.integers(1, 20))
    n, m, c = draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(st.integers(1, 9))
    element = st.integers(0, window)
    return (
        draw(hnp.arrays(np.int64, (n, c), elements=element)),
        draw(hnp.arrays(np.int64, (m, c), elements=element)),
        window,
    )


@given(pairs())
def test_distance_survives_conversion(pair: tuple[Int, Int, int]) -> None:
    q, k, window = pair
    of_spikes = l1_distance(first_spike(encode(q, window)), first_spike(encode(k, window)))
    assert (of_spikes == l1_distance(q, k)).all()
    assert (of_spikes == l1_distance(latency(q, window), latency(k, window))).all()


@given(pairs())
def test_distance_is_a_metric_and_two_silences_are_equal(pair: tuple[Int, Int, int]) -> None:
    q, k, _ = pair
    d = l1_distance(q, k)
    assert (d == l1_distance(k, q).T).all()
    assert (np.diag(l1_distance(q, q)) == 0).all()
    assert ((d == 0) == (q[:, None] == k[None]).all(-1)).all()
    assert (d <= l1_distance(q, q[:1]) + l1_distance(q[:1], k)).all()
    assert not l1_distance(np.zeros_like(q), np.zeros_like(k)).any()


def test_distance_by_hand() -> None:
    assert l1_distance([[0, 5, 15]], [[15, 5, 0], [0, 4, 15]]).tolist() == [[30, 1]]
    assert hamming_distance([[0, 5, 15]], [[15, 5, 0], [0, 4, 15]]).tolist() == [[2, 1]]
    assert squared_distance([[0, 5, 15]], [[15, 5, 0], [0, 4, 15]]).tolist() == [[450, 1]]


@given(pairs(), taus)
def test_leak_equals_exponential(pair: tuple[Int, Int, int], tau: float) -> None:
    d = l1_distance(*pair[:2])
    # u_{r+1} = beta u_r from u_0 = 1; every membrane leaks until its own time is up.
    membrane, beta = np.ones(d.shape), float(np.exp(-1.0 / tau))
    for step in range(int(d.max(initial=0))):
        membrane = np.where(step < d, beta * membrane, membrane)
    np.testing.assert_allclose(membrane, affinity(d, tau), rtol=LEAK_RTOL, atol=1e-300)


@given(pairs(), taus)
def test_affinity_takes_its_values_from_a_finite_table(pair: tuple[Int, Int, int], tau: float) -> None:
    q, k, window = pair
    d = l1_distance(q, k)
    table = np.exp(-np.arange(q.shape[1] * window + 1) / tau)
    assert d.min() >= 0
    assert d.max() <= q.shape[1] * window
    assert (table[d] == affinity(d, tau)).all()


@given(pairs(), st.floats(1.0, 500.0))
def test_affinity_is_positive_ordered_and_one_only_for_equal_tokens(pair: tuple[Int, Int, int], tau: float) -> None:
    q, k, _ = pair
    d = l1_distance(q, k)
    a = affinity(d, tau)
    assert ((a > 0) & (a <= 1)).all()
    assert ((a == 1) == (d == 0)).all()
    assert ((a[:, :, None] > a[:, None, :]) == (d[:, :, None] < d[:, None, :])).all()


@given(pairs(), st.floats(0.5, 200.0), st.data())
def test_latency_stability_is_bounded_by_the_time_constant(
    pair: tuple[Int, Int, int], tau: float, data: st.DataObject
) -> None:
    q, k, window = pair
    moved_q = np.clip(q + data.draw(hnp.arrays(np.int64, q.shape, elements=st.integers(-3, 3))), 0, window)
    moved_k = np.clip(k + data.draw(hnp.arrays(np.int64, k.shape, elements=st.integers(-3, 3))), 0, window)
    eta = np.abs(moved_q - q).sum(1)[:, None] + np.abs(moved_k - k).sum(1)[None, :]
    change = np.abs(affinity(l1_distance(moved_q, moved_k), tau) - affinity(l1_distance(q, k), tau))
    assert (change <= eta / tau + 1e-15).all()


@given(st.floats(0.5, 50.0), st.floats(0.0, 20.0))
@settings(max_examples=20)
def test_affinity_solves_the_membrane_equation(tau: float, duration: float) -> None:
    # tau du/dt = -u from u(0) = 1, by Heun's rule with a step whose error is known.
    steps = 4000
    h = duration / steps
    u = 1.0
    for _ in range(steps):
        slope = -u / tau
        u += h / 2 * (slope - (u + h * slope) / tau)
    np.testing.assert_allclose(affinity(duration, tau), u, atol=1e-5)


@st.composite
def rows(draw: st.DrawFn) -> npt.NDArray[np.float64]:
    """Log affinities, some of them far below what a float can hold as an affinity."""
    n, m = draw(st.integers(1, 4)), draw(st.integers(1, 40))
    d = draw(hnp.arrays(np.int64, (n, m), elements=st.integers(0, 5000)))
    return np.asarray(-d / draw(taus))


@given(rows())
def test_pow2_row_mass_stays_within_root_two(log_a: npt.NDArray[np.float64]) -> None:
    mass = pow2_rows(log_a).sum(axis=-1)
    slack = 1e-9  # |ln A| up to 1e5 leaves this much of a float64 exponential
    assert ((mass >= math.sqrt(0.5) * (1 - slack)) & (mass <= math.sqrt(2.0) * (1 + slack))).all()


@given(rows())
def test_pow2_weights_lie_within_root_two_of_exact_ones(log_a: npt.NDArray[np.float64]) -> None:
    exact, shifted = exact_rows(log_a), pow2_rows(log_a)
    least = np.finfo(np.float64).tiny  # below it numbers have few bits, and no relative precision
    assert (shifted >= exact * math.sqrt(0.5) * (1 - 1e-9) - least).all()
    assert (shifted <= exact * math.sqrt(2.0) * (1 + 1e-9) + least).all()


@given(rows())
def test_pow2_rows_keep_ratios_and_order(log_a: npt.NDArray[np.float64]) -> None:
    exact, shifted = exact_rows(log_a), pow2_rows(log_a)
    top = exact.argmax(axis=-1)[:, None]
    ratio = np.take_along_axis(exact, top, -1), np.take_along_axis(shifted, top, -1)
    np.testing.assert_allclose(exact / ratio[0], shifted / ratio[1], rtol=1e-9, atol=1e-300)


@given(rows())
def test_exact_rows_are_the_softmax_and_sum_to_one(log_a: npt.NDArray[np.float64]) -> None:
    w = exact_rows(log_a)
    np.testing.assert_allclose(w.sum(axis=-1), 1.0, rtol=1e-12)
    lifted = np.exp(log_a - log_a.max(axis=-1, keepdims=True))
    np.testing.assert_allclose(w, lifted / lifted.sum(axis=-1, keepdims=True), rtol=1e-12)


@given(hnp.arrays(np.float64, (3, 7), elements=st.floats(-300, 0)))
def test_row_exponent_is_that_of_the_plain_sum_where_that_exists(log_a: npt.NDArray[np.float64]) -> None:
    mass = np.exp(log_a).sum(axis=-1)
    # Next to a half-way point the two float sums may fall on different sides; the law holds away from it.
    distance_to_half = np.abs((np.log2(mass) % 1) - 0.5)
    clear = distance_to_half > 1e-9
    assert (row_exponent(log_a)[clear] == pow2_exponent(mass)[clear]).all()


def test_rows_that_would_underflow_stay_correct() -> None:
    d = np.array([[90_000, 90_001, 90_005]])
    w_exact, w_pow2 = exact_rows(-d / 1.0), pow2_rows(-d / 1.0)
    expected = np.exp([0.0, -1.0, -5.0])
    np.testing.assert_allclose(w_exact[0], expected / expected.sum(), rtol=1e-9)
    log2_mass = (-90_000 + math.log(expected.sum())) / math.log(2)
    assert int(row_exponent(-d / 1.0)[0]) == round(log2_mass)
    np.testing.assert_allclose(w_pow2[0].sum(), 2 ** (log2_mass - round(log2_mass)), rtol=1e-9)


@st.composite
def heads(draw: st.DrawFn) -> tuple[list[Int], int, npt.NDArray[np.float64], Int | None]:
    window = draw(st.integers(1, 20))
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 6)))
    codes = [draw(hnp.arrays(np.int64, shape, elements=st.integers(0, window))) for _ in range(3)]
    tau = np.array(draw(st.lists(taus, min_size=shape[1], max_size=shape[1])))
    grid = (shape[1], shape[2], shape[2])
    delay = draw(st.none() | hnp.arrays(np.int64, grid, elements=st.integers(0, 30)))
    return codes, window, tau, delay


@given(heads(), st.sampled_from(["exact", "pow2"]))
def test_spike_form_and_code_form_agree(
    given_heads: tuple[list[Int], int, npt.NDArray[np.float64], Int | None], row_scale: RowScale
) -> None:
    (q, k, v), window, tau, delay = given_heads
    on_codes = attention(q, k, v, tau, row_scale, delay)
    q_spikes, k_spikes, v_spikes = (encode(z, window) for z in (q, k, v))
    steps = attention_spikes(q_spikes, k_spikes, v_spikes, tau, row_scale, delay)
    assert steps.shape == (window, *v.shape)
    np.testing.assert_allclose(readout(steps), on_codes, rtol=1e-12, atol=1e-12)


@given(heads())
def test_the_same_weights_mix_values_at_every_step(
    given_heads: tuple[list[Int], int, npt.NDArray[np.float64], Int | None],
) -> None:
    (q, k, v), window, tau, delay = given_heads
    w = weights(q, k, tau, "pow2", delay)
    spikes = encode(v, window)
    steps = attention_spikes(encode(q, window), encode(k, window), spikes, tau, "pow2", delay)
    for n in range(window):
        np.testing.assert_array_equal(steps[n], w @ spikes[n].astype(np.float64))


@given(heads())
def test_a_delay_is_that_many_more_steps_of_leak(
    given_heads: tuple[list[Int], int, npt.NDArray[np.float64], Int | None],
) -> None:
    (q, k, _), _, tau, _ = given_heads
    delay = np.arange(q.shape[2] ** 2).reshape(q.shape[2], -1) * np.ones((q.shape[1], 1, 1), dtype=np.int64)
    w = weights(q, k, tau, "exact", delay)
    a = exact_rows(-(l1_distance(q, k) + delay) / tau[:, None, None])
    np.testing.assert_array_equal(w, a)


@pytest.mark.parametrize(
    ("q", "k", "words"),
    [
        (np.zeros(3, int), np.zeros((2, 3), int), "token and a channel axis"),
        (np.zeros((2, 3), int), np.zeros((2, 4), int), "agree in every axis"),
        (np.zeros((1, 2, 3), int), np.zeros((2, 2, 3), int), "agree in every axis"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(q: Int, k: Int, words: str) -> None:
    for distance in (l1_distance, hamming_distance, squared_distance):
        with pytest.raises(LapisError, match=words):
            distance(q, k)


def test_bad_input_is_refused_with_what_was_seen() -> None:
    good = np.zeros((1, 2, 3), int)
    with pytest.raises(LapisError, match="q has dtype float64; codes are integers"):
        attention(good + 0.5, good, good, [1.0])
    with pytest.raises(LapisError, match=r"tau=0\.0"):
        attention(good, good, good, [0.0])
    with pytest.raises(LapisError, match="one row for each key"):
        attention(good, good, np.zeros((1, 3, 3), int), [1.0])
    with pytest.raises(LapisError, match="nonnegative integer"):
        attention(good, good, good, [1.0], delay=np.full((1, 2, 2), -1))
    with pytest.raises(LapisError, match="distances are nonnegative"):
        affinity([-1.0], 1.0)
    with pytest.raises(LapisError, match="distances are nonnegative"):
        affinity([math.nan], 1.0)
    with pytest.raises(LapisError, match="ln A must be finite"):
        pow2_rows([[0.0, -math.inf]])

"""Noisy spike times: what moves, what is lost, and that every simulator draws the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lapis import native
from lapis.config import CodingByPoint, MinCodeByPoint
from lapis.deploy import integer
from lapis.deploy.noise import Noise
from lapis.deploy.simulate import Simulator
from lapis.deploy.simulate_native import NativeSimulator
from lapis.energy.counts import deliveries
from lapis.errors import LapisError
from lapis.trace import Tally
from tests.networks import images_for, wide_network

CODES = np.random.default_rng(0).integers(-15, 16, (97, 101)).astype(np.int8)


@pytest.mark.parametrize(("jitter", "min_code"), [(0, 1), (1, 1), (3, 4), (40, 2)])
def test_a_spike_moves_by_at_most_the_jitter_and_is_lost_past_its_deadline(jitter: int, min_code: int) -> None:
    codes = np.where(np.abs(CODES) < min_code, 0, CODES).astype(np.int8)
    noisy = Noise(jitter)(codes, 15, min_code, 0, "v")
    assert noisy.dtype == np.int8
    fired = noisy != 0
    assert (np.sign(noisy) == np.sign(codes))[fired].all()
    assert np.abs(noisy).max() == 15
    assert np.abs(noisy)[fired].min() >= min_code
    assert (np.abs(noisy.astype(int) - codes) <= jitter)[fired].all()
    # Who is lost could have been late enough; nobody else is.
    assert (np.abs(codes)[~fired] - jitter < min_code).all()
    if jitter == 1:
        inside = (np.abs(codes) > 1) & (np.abs(codes) < 15)
        counts = np.bincount(1 + np.abs(noisy.astype(int))[inside] - np.abs(codes.astype(int))[inside])
        assert counts / inside.sum() == pytest.approx([1 / 3] * 3, abs=0.02)


def test_spikes_are_lost_with_their_probability() -> None:
    noisy = Noise(drop=0.25)(CODES, 15, 1, 0, "v")
    assert (noisy[noisy != 0] == CODES[noisy != 0]).all()
    assert np.count_nonzero(noisy) / np.count_nonzero(CODES) == pytest.approx(0.75, abs=0.02)
    assert not Noise(drop=1.0)(CODES, 15, 1, 0, "v").any()
    assert (Noise(drop=0.0)(CODES, 15, 1, 0, "v") == CODES).all()


def test_draws_depend_on_seed_block_and_point_only() -> None:
    noise = Noise(2, 0.1, 5)
    one = noise(CODES, 15, 1, 3, "q")
    assert (Noise(2, 0.1, 5)(CODES, 15, 1, 3, "q") == one).all()
    others = (noise(CODES, 15, 1, 3, "k"), noise(CODES, 15, 1, 2, "q"), Noise(2, 0.1, 6)(CODES, 15, 1, 3, "q"))
    assert all((other != one).any() for other in others)
    assert Noise(2, points=("k",))(CODES, 15, 1, 3, "q") is CODES


@pytest.mark.parametrize("bad", [{"jitter": -1}, {"drop": 1.5}, {"drop": float("nan")}, {"seed": -1}])
def test_noise_that_cannot_be_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(LapisError, match=r"drop must lie in 0\.\.1"):
        Noise(**bad)


@pytest.mark.parametrize("coding", ["signed", "unsigned"])
def test_every_simulator_runs_the_same_noise(coding: Any) -> None:
    network = wide_network(coding=CodingByPoint.all(coding), min_code=MinCodeByPoint(qk=2, v=3))
    images, noise = images_for(network, 2), Noise(1, 0.1, 7)
    whole = Simulator(network, noise=noise).run(images)
    assert (whole.trace[0, "attention_in"] != integer.watch(network, images).trace[0, "attention_in"]).any()
    tally = Tally()
    tally.add(whole.trace)
    assert whole.events.spikes == tally.fired
    assert whole.events.operations == deliveries(network.config, tally)
    alone = Simulator(network, noise=noise).run(images[1:])
    assert (alone.logits == whole.logits[1:]).all()
    assert (Simulator(network, noise=Noise()).run(images).logits == integer.run(network, images)).all()
    if native.available():
        in_c = NativeSimulator(network, 2, noise=noise).run(images)
        assert (in_c.logits == whole.logits).all()
        assert in_c.events == whole.events
        assert all((in_c.trace[key] == whole.trace[key]).all() for key in whole.trace)

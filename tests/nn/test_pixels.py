"""Bytes become the floats that a network trains on."""

from __future__ import annotations

import numpy as np
import torch

from lapis.nn.pixels import normalise, renormalise
from lapis.preprocess import NORMALISATIONS, Preprocess

PIXELS = np.random.default_rng(0).integers(0, 256, (2, 8, 9, 3), dtype=np.uint8)
RULES = [Preprocess(8, mean, std) for mean, std in NORMALISATIONS.values()]
# Two float32 roundings of numbers up to 3.
ATOL = 1e-6


def test_normalised_pixels_have_their_mean_taken_off_and_their_spread_divided_out() -> None:
    for rule in RULES:
        expected = (PIXELS / 255.0 - rule.mean) / rule.std
        made = normalise(torch.from_numpy(PIXELS), rule)
        assert made.shape == (2, 3, 8, 9)
        assert np.abs(made.permute(0, 2, 3, 1).numpy() - expected).max() <= ATOL


def test_renormalising_is_normalising_by_the_other_rule() -> None:
    for old in RULES:
        for new in RULES:
            there = renormalise(normalise(torch.from_numpy(PIXELS), old), old, new)
            assert torch.allclose(there, normalise(torch.from_numpy(PIXELS), new), atol=1e-5)

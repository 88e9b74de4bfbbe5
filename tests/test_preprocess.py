"""Laws of preprocessing: the bytes that a network sees."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from lapis.errors import LapisError
from lapis.preprocess import Preprocess


@given(
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    size=st.integers(1, 24),
    interpolation=st.sampled_from(["nearest", "bilinear", "bicubic", "lanczos"]),
    crop=st.floats(0.3, 1.0),
)
def test_any_image_becomes_a_square_of_the_size_asked_for(
    height: int, width: int, size: int, interpolation: Any, crop: float
) -> None:
    image = np.full((height, width, 3), (7, 130, 255), dtype=np.uint8)
    out = Preprocess(size, interpolation=interpolation, crop=crop).resize(image)
    assert out.shape == (size, size, 3)
    assert out.dtype == np.uint8
    assert (out == image[0, 0]).all()


def test_an_image_of_the_right_size_is_left_alone() -> None:
    image = np.random.default_rng(0).integers(0, 256, (9, 9, 3), dtype=np.uint8)
    assert (Preprocess(9).resize(image) == image).all()


def test_bicubic_is_pillows() -> None:
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    pillow = np.asarray(Image.fromarray(image).resize((96, 96), Image.Resampling.BICUBIC))
    assert (Preprocess(96).resize(image) == pillow).all()


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "lanczos"])
def test_rows_are_resampled_before_columns_whatever_the_shape(interpolation: Any) -> None:
    # A tall image that shrinks: here Pillow itself takes the columns first, from version 13 on.
    image = np.random.default_rng(0).integers(0, 256, (266, 91, 3), dtype=np.uint8)
    method = Image.Resampling[interpolation.upper()]
    rows = Image.fromarray(image).resize((32, 266), method)
    columns = np.asarray(rows.resize((32, 94), method))
    assert (Preprocess(32, interpolation=interpolation).resize(image) == columns[31:63]).all()


def test_normalising_is_what_training_does() -> None:
    image = np.arange(2 * 2 * 3, dtype=np.uint8).reshape(1, 2, 2, 3)
    preprocess = Preprocess(2, mean=(0.5, 0.4, 0.3), std=(0.1, 0.2, 0.3))
    expected = (image / 255 - np.array(preprocess.mean)) / np.array(preprocess.std)
    assert np.abs(preprocess.normalise(image) - expected).max() < 1e-5


def test_equal_records_give_equal_text() -> None:
    assert json.dumps(Preprocess(8, crop=1).to_dict()) == json.dumps(Preprocess(8, crop=1.0).to_dict())


def test_a_record_survives_its_dictionary() -> None:
    preprocess = Preprocess(96, mean=(0.1, 0.2, 0.3), std=(1, 1, 1), interpolation="lanczos", crop=0.875)
    assert Preprocess.from_dict({**preprocess.to_dict(), "mean": [0.1, 0.2, 0.3]}) == preprocess


@pytest.mark.parametrize(
    "change",
    [
        {"size": 0},
        {"size": 2.0},
        {"size": True},
        {"mean": (1, 2)},
        {"mean": ("a", 0, 0)},
        {"std": (0, 1, 1)},
        {"std": (float("nan"), 1, 1)},
        {"interpolation": "magic"},
        {"crop": 0},
        {"crop": 2},
    ],
)
def test_a_record_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(LapisError, match=next(iter(change))):
        Preprocess(**{"size": 8, **change})


@pytest.mark.parametrize("image", [np.zeros((4, 4)), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), dtype=np.uint8)])
def test_what_is_no_image_is_refused(image: Any) -> None:
    with pytest.raises(LapisError, match="images are"):
        Preprocess(4).resize(image)

"""Laws of preprocessing: the bytes that a network sees."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from PIL import Image

from lapis import models, preprocess
from lapis.errors import LapisError
from lapis.preprocess import Preprocess, UnreadableImageError, decode_image, read_image
from tests.resize_reference import resize


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


@given(
    height=st.integers(1, 150),
    width=st.integers(1, 150),
    size=st.integers(1, 24),
    interpolation=st.sampled_from(["nearest", "bilinear", "bicubic", "lanczos"]),
    crop=st.floats(0.3, 1.0),
    seed=st.integers(0, 1 << 16),
)
# A tall image that shrinks: from version 13 on Pillow itself takes its columns first.
@example(height=150, width=51, size=18, interpolation="bicubic", crop=1.0, seed=0)
@settings(max_examples=60, deadline=None)
def test_resizing_is_that_of_the_specification(
    height: int, width: int, size: int, interpolation: Any, crop: float, seed: int
) -> None:
    assume(max(height, width) <= 8 * min(height, width))
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    short = math.floor(size / crop + 0.5)
    share = short / min(height, width)
    whole = resize(image, max(short, round(width * share)), max(short, round(height * share)), interpolation)
    top, left = ((side - size) // 2 for side in whole.shape[:2])
    out = Preprocess(size, interpolation=interpolation, crop=crop).resize(image)
    assert (out == whole[top : top + size, left : left + size]).all()


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
    with pytest.raises(LapisError, match=r"images are|no pixel"):
        Preprocess(4).resize(image)


def _encoded(image: Image.Image, form: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def test_grey_of_16_bits_keeps_its_shades() -> None:
    ramp = np.linspace(0, 65535, 256).round().astype(np.uint16).reshape(16, 16)
    pixels = decode_image(_encoded(Image.fromarray(ramp)), "ramp.png")
    assert (pixels == np.arange(256, dtype=np.uint8).reshape(16, 16)[:, :, None]).all()


def test_samples_without_an_agreed_range_are_refused() -> None:
    wide = Image.fromarray(np.array([[0, 1 << 20]], dtype=np.int32))
    real = Image.fromarray(np.array([[0.0, 0.5]], dtype=np.float32))
    for image in (wide, real):
        with pytest.raises(UnreadableImageError, match="not of 8 or 16 bits"):
            decode_image(_encoded(image, "TIFF"), "odd.tiff")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photo_is_turned_as_its_camera_says(orientation: int) -> None:
    upright = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    tag = Image.Exif()
    tag[0x0112] = orientation
    stored = Image.fromarray(upright)
    turn = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}.get(orientation)
    stored = stored if turn is None else stored.transpose(Image.Transpose(turn))
    assert (decode_image(_encoded(stored, exif=tag), "photo.png") == upright).all()


class _Endless(io.RawIOBase):
    """A file like /dev/zero."""

    def read(self, size: int = -1) -> bytes:
        assert size > 0, "what has no end was to be read to its end"
        return bytes(size)


def test_a_file_that_does_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preprocess, "MAX_BYTES", 5 << 20)
    with pytest.raises(UnreadableImageError, match="more than 5242880 bytes"):
        read_image(_Endless())  # type: ignore[arg-type]


def test_a_file_that_comes_in_small_pieces_is_read_to_its_end() -> None:
    encoded = io.BytesIO()
    Image.new("RGB", (9, 5), "red").save(encoded, "PNG")
    pieces = iter([encoded.getvalue()[at : at + 1] for at in range(len(encoded.getvalue()))])

    class Slow:
        def read(self, size: int = -1) -> bytes:
            return next(pieces, b"")

    assert read_image(Slow()).shape == (5, 9, 3)  # type: ignore[arg-type]


def test_a_program_is_refused_before_anything_runs_it() -> None:
    page = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"
    with pytest.raises(UnreadableImageError, match="PostScript"):
        decode_image(page, "page.png")


def test_a_name_with_a_zero_byte_is_one_error() -> None:
    with pytest.raises(UnreadableImageError, match="null"):
        read_image("a\0b.png")


def test_a_program_in_an_image_does_not_run_and_other_formats_are_named(tmp_path: Path) -> None:
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
    # IPTC around PostScript: Pillow's plugin for it opens any file inside itself.
    record = b"\x1c\x08\x0a" + len(script).to_bytes(2, "big") + script
    fields = b"".join(
        b"\x1c" + bytes([section, number]) + len(value).to_bytes(2, "big") + value
        for section, number, value in (
            (3, 20, b"\x00\x09"), (3, 30, b"\x00\x09"), (3, 60, b"\x01\x00"), (3, 120, b"\x01"),
        )
    )  # fmt: skip
    for data, words in (
        (fields + record, "it is not an image"),
        (script, "PostScript"),
        (b"\0\0\0\x18ftypheic" + bytes(40), "pillow-heif"),
    ):
        (tmp_path / "photo.jpg").write_bytes(data)
        with pytest.raises(LapisError, match=words):
            read_image(tmp_path / "photo.jpg")


def test_a_picture_given_as_a_model_is_called_a_picture(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "ok.jpg")
    with pytest.raises(LapisError, match="is a JPEG image, not a network"):
        models.load(tmp_path / "ok.jpg")

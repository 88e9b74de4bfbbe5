"""Prepare any image for a network: decoding, resizing, cropping, mean and standard deviation."""

from __future__ import annotations

import dataclasses
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from lapis.codes import round_half_up
from lapis.errors import LapisError

Pixels = npt.NDArray[np.uint8]
Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos"]

# What Pillow can read: a path, the bytes of a file, a file opened for reading bytes, or an image of Pillow's own.
Readable = str | Path | bytes | bytearray | memoryview | BinaryIO | Image.Image

Triple = tuple[float, float, float]

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Mean and standard deviation of each colour, by the name of the rule.
NORMALISATIONS: dict[str, tuple[Triple, Triple]] = {
    "imagenet": (IMAGENET_MEAN, IMAGENET_STD),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "cifar": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
}
MAX_SIZE = 4096
# The largest mean and standard deviation, on a scale where white is 1.
MAX_NORMAL = 1000.0
# Pixels of an image, as it is stored and as it is resized: a few bytes of a file can claim any number of them.
MAX_PIXELS = 1 << 27
# Bytes of an image's file: that many pixels, uncompressed, with four samples of 16 bits.
MAX_BYTES = 8 * MAX_PIXELS
PIECE = 1 << 20
MAX_ASPECT = 1000
MAX_SAMPLE = (1 << 16) - 1

# What is decoded. Pillow knows more, some of which open other files or run a program: PostScript, and IPTC around it.
FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
# What files of other formats begin with, and what to do with them.
_BEGINNINGS = {
    b"%!PS": "it is PostScript, a program, which is not run; save it as PNG",
    b"\xc5\xd0\xd3\xc6": "it is PostScript, a program, which is not run; save it as PNG",
    b"%PDF": "it is a PDF; save its page as PNG",
    b"<svg": "it is a drawing (SVG); save it as PNG",
}
_HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1")
_KNOWN_BEGINNINGS = {b"\xff\xd8\xff": "JPEG", b"\x89PNG\r\n\x1a\n": "PNG", b"GIF8": "GIF", b"BM": "BMP"}


@dataclass(frozen=True)
class Preprocess:
    """x = (pixel / 255 - mean) / std, after the short side was resized to size / crop and the centre cropped."""

    size: int
    mean: Triple = IMAGENET_MEAN
    std: Triple = IMAGENET_STD
    interpolation: Interpolation = "bicubic"
    crop: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or not 1 <= self.size <= MAX_SIZE:
            raise LapisError(f"size={self.size!r} is not an image side; use an integer from 1 to {MAX_SIZE}")
        for name in ("mean", "std"):
            values = getattr(self, name)
            if (
                not isinstance(values, (list, tuple, np.ndarray))
                or len(values) != 3
                or not all(map(_is_number, values))
            ):
                raise LapisError(f"{name}={values!r} must be three numbers, one per colour channel")
            object.__setattr__(self, name, tuple(float(value) for value in values))
        if min(self.std) < 1e-3 or max(map(abs, (*self.mean, *self.std))) > MAX_NORMAL:
            raise LapisError(
                f"mean={self.mean} and std={self.std} must lie within {MAX_NORMAL:g}, std above 0.001; pixels are on a "
                "scale from 0 to 1"
            )
        if self.interpolation not in get_args(Interpolation):
            raise LapisError(
                f"interpolation={self.interpolation!r} is unknown; use {', '.join(get_args(Interpolation))}"
            )
        if not _is_number(self.crop) or not 0.1 <= self.crop <= 1.0:
            raise LapisError(f"crop={self.crop!r} must be the share of the short side kept, from 0.1 to 1")
        # 1 and 1.0 must be written the same way in a file.
        object.__setattr__(self, "crop", float(self.crop))

    def resize(self, image: Pixels) -> Pixels:
        """An image (height, width, 3) of bytes as the (size, size, 3) that the network takes."""
        pixels = check_pixels(image)
        height, width, _ = pixels.shape
        short = int(round_half_up(self.size / self.crop))
        if (height, width) != (short, short):
            share = short / min(height, width)
            target = (max(short, round(width * share)), max(short, round(height * share)))
            if target[0] * target[1] > MAX_PIXELS:
                raise LapisError(
                    f"an image of {width} x {height} pixels is too narrow: resized it would have "
                    f"{target[0]} x {target[1]}; cut out the part to classify"
                )
            # Along the rows, then along the columns, rounded to bytes after each. In one call, Pillow chooses the order
            # itself, by a rule that differs between versions, and the bytes depend on it.
            method = Image.Resampling[self.interpolation.upper()]
            wide = Image.fromarray(pixels).resize((target[0], height), method)
            pixels = np.asarray(wide.resize(target, method))
        top, left = ((side - self.size) // 2 for side in pixels.shape[:2])
        return np.ascontiguousarray(pixels[top : top + self.size, left : left + self.size])

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Preprocess:
        """The inverse of `to_dict`, for files: every field is checked."""
        if not isinstance(fields, dict):
            raise LapisError(f"preprocessing is a table of fields, not {type(fields).__name__}")
        known = {field.name for field in dataclasses.fields(cls)}
        if not {"size"} <= fields.keys() <= known:
            raise LapisError(f"preprocessing has the fields {sorted(fields)}; it takes {sorted(known)}")
        return cls(**fields)


class UnreadableImageError(LapisError):
    """An image that cannot be decoded; `where` names it."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"cannot read image {where}: {why}")
        self.where = where

    def __reduce__(self) -> Any:
        # Loader processes send exceptions by pickle, which calls the class with `args` alone.
        return UnreadableImageError, (self.where, str(self).split(": ", 1)[-1])


def normalisation(name: str) -> tuple[Triple, Triple]:
    """Mean and standard deviation by name."""
    if name not in NORMALISATIONS:
        raise LapisError(f"normalise={name!r} is unknown; use {', '.join(NORMALISATIONS)}")
    return NORMALISATIONS[name]


def read_image(source: Readable) -> Pixels:
    """Pixels (height, width, 3) of an image file, of its bytes, of an open file or of a Pillow image."""
    if isinstance(source, Image.Image):
        where = f"of mode {source.mode}"
        with _named_errors(where):
            _check_size(source, where)
            return _as_rgb(source, where)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return decode_image(bytes(source), f"of {len(source)} bytes")
    if isinstance(source, (str, Path)):
        with _named_errors(str(source)), open(source, "rb") as file:
            data = read_bytes(file, str(source))
        return decode_image(data, str(source))
    if getattr(source, "closed", False):
        raise LapisError("a closed file was given as an image; open it again, or give its path")
    # Read from where it stands, and left there: the same image comes if it is asked for again.
    start = source.tell() if hasattr(source, "seekable") and source.seekable() else None
    data = read_bytes(source, "of an open file")
    if start is not None:
        source.seek(start)
    return decode_image(data, f"of {len(data)} bytes")


def read_file(path: Path) -> Pixels:
    """As `read_image`, for a path that was found in a folder: what is there may be a pipe, which never ends."""
    if path.exists() and not path.is_file():
        raise UnreadableImageError(str(path), "it is not a file; remove it from the folder")
    return read_image(path)


def read_bytes(file: BinaryIO, where: str) -> bytes:
    """What an open file holds, up to the size of an image; a device may have no end."""
    data = bytearray()
    while piece := file.read(PIECE):
        if not isinstance(piece, bytes):
            raise LapisError(f"a file that gives {type(piece).__name__} was given as an image; open it with mode 'rb'")
        data += piece
        if len(data) > MAX_BYTES:
            raise UnreadableImageError(where, f"it has more than {MAX_BYTES} bytes")
    return bytes(data)


def decode_image(data: bytes, where: str) -> Pixels:
    """Pixels (height, width, 3) of an encoded image; `where` names it in the error."""
    for beginning, remedy in _BEGINNINGS.items():
        if data.startswith(beginning):
            raise UnreadableImageError(where, remedy)
    with _named_errors(where):
        try:
            opened = Image.open(io.BytesIO(data), formats=_formats(data))
        except UnidentifiedImageError:
            if image_format(data[:16]) == "HEIC":
                raise UnreadableImageError(
                    where,
                    "it is HEIC, which Pillow reads only with pillow-heif: pip install pillow-heif, or save as JPEG",
                ) from None
            raise
        with opened as image:
            _check_size(image, where)
            image.load()
            # A decoder may find another size than the header says.
            _check_size(image, where)
            return _as_rgb(image, where)


def _formats(data: bytes) -> tuple[str, ...]:
    """The formats that are tried; HEIF where a plugin such as pillow-heif is there for it."""
    if (found := image_format(data[:16])) in ("JPEG", "PNG", "WebP"):
        if found == "WebP":
            from PIL import WebPImagePlugin  # noqa: F401 - by itself: all plugins of Pillow are slow to import
        return (found.upper(),)
    Image.init()
    known = tuple(name for name in FORMATS if name in Image.OPEN)
    if found != "HEIC":
        return known
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return known
    register_heif_opener()
    return ("HEIF",)


def image_format(beginning: bytes) -> str:
    """The name of the image format whose files begin so; nothing where it is none of the common ones."""
    if beginning[4:8] == b"ftyp" and beginning[8:12] in _HEIF_BRANDS:
        return "HEIC"
    if beginning[:4] == b"RIFF" and beginning[8:12] == b"WEBP":
        return "WebP"
    return next((name for start, name in _KNOWN_BEGINNINGS.items() if beginning.startswith(start)), "")


@contextmanager
def _named_errors(where: str) -> Iterator[None]:
    """Every way in which Pillow fails, as one kind of error that names the image."""
    try:
        yield
    except UnreadableImageError:
        raise
    except UnidentifiedImageError as error:
        raise UnreadableImageError(where, "it is not an image; use PNG, JPEG, WebP or another common format") from error
    except Exception as error:  # decoders of damaged files raise many kinds
        raise UnreadableImageError(
            where, getattr(error, "strerror", None) or str(error) or type(error).__name__
        ) from error


def _check_size(image: Image.Image, where: str) -> None:
    """Refuse what a few bytes of a file can claim, before it is decoded."""
    short, long = sorted(image.size)
    if short * long > MAX_PIXELS:
        raise UnreadableImageError(where, f"it has {short} x {long} pixels; at most {MAX_PIXELS} in all are decoded")
    # The short side is resized to that of the network, and the long one by as much.
    if long > MAX_ASPECT * short:
        raise UnreadableImageError(
            where, f"it has {short} x {long} pixels; a side has at most {MAX_ASPECT} times the other"
        )


def _as_rgb(stored: Image.Image, where: str) -> Pixels:
    """Three bytes per pixel; samples of 16 bits keep their highest eight, rounded. Pillow would cut them off at 255."""
    # Cameras store a photo as the sensor lay, and beside it how to turn it.
    image = ImageOps.exif_transpose(stored)
    if not image.mode.startswith(("I", "F")):
        return np.asarray(image.convert("RGB"))
    samples = np.asarray(image)
    if image.mode == "F" or (samples.size and not 0 <= int(samples.min()) <= int(samples.max()) <= MAX_SAMPLE):
        raise UnreadableImageError(where, "its samples are not of 8 or 16 bits; save it as 8-bit or 16-bit grey or RGB")
    grey = (samples.astype(np.int64) * 255 + MAX_SAMPLE // 2) // MAX_SAMPLE
    return np.repeat(grey.astype(np.uint8)[:, :, None], 3, axis=2)


def check_pixels(image: npt.ArrayLike) -> Pixels:
    """The image as (height, width, 3) of bytes: grey (height, width) is repeated, alpha (height, width, 4) left out."""
    pixels = np.asarray(image)
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (1,), (3,), (4,)):
        raise LapisError(
            f"an image of shape {pixels.shape} and dtype {pixels.dtype} was given; "
            "images are (height, width, 3) of bytes (uint8), red first; grey (height, width) and four channels will do"
        )
    if 0 in pixels.shape:
        raise LapisError(f"an image of shape {pixels.shape} was given, which has no pixel")
    if pixels.ndim == 2 or pixels.shape[2] == 1:
        return np.repeat(pixels.reshape(*pixels.shape[:2], 1), 3, axis=2)
    return pixels[:, :, :3]


def _is_number(value: object) -> bool:
    # Compared, not converted: an integer may be beyond every float.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max

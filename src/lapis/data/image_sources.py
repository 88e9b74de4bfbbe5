"""The images that words on a command line name: files, folders, patterns, standard input and packaged images.

A word that names nothing gives one picture that cannot be read, so that the others are still answered.
"""

from __future__ import annotations

import glob
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lapis._util.run_layout import NETWORK_FILES
from lapis.data.class_folders import images_below, is_image
from lapis.data.packaged import SAMPLE, named_image
from lapis.models import WEIGHT_SUFFIXES
from lapis.preprocess import Pixels, UnreadableImageError, decode_image, read_bytes, read_file, read_image

STDIN = "-"


@dataclass(frozen=True)
class ImageSource:
    """An image by its name. `read` gives its pixels (height, width, 3), or raises a LapisError; `path` is its file."""

    name: str
    read: Callable[[], Pixels]
    path: Path | None = None


def names_images(word: str) -> bool:
    """Whether a word that could also be a model names images: by its ending, or as a file or folder that is there."""
    path = Path(word)
    if path.is_dir():
        return not any((path / name).is_file() for name in NETWORK_FILES)
    if path.is_file():
        return path.suffix not in WEIGHT_SUFFIXES
    return word == STDIN or word.startswith(SAMPLE) or is_image(path) or glob.has_magic(word)


def find_sources(words: Sequence[str]) -> list[ImageSource]:
    """The pictures of all words, in their order; those of a folder or a pattern sorted by name."""
    return [picture for word in words for picture in _named(word)]


def _named(word: str) -> Iterator[ImageSource]:
    path = Path(word)
    if word == STDIN:
        yield ImageSource(STDIN, _from_stdin)
    elif word.startswith(SAMPLE):
        yield ImageSource(word, lambda: named_image(word)[0])
    elif path.is_dir():
        found = images_below(path)
        if not found:
            yield _missing(word, "this folder holds no images")
        for file in found:
            yield ImageSource(str(file), partial(read_file, file), file)
    elif path.exists() or not glob.has_magic(word):
        yield ImageSource(word, partial(read_image, word), path)
    else:
        # Shells expand patterns themselves; this is for a quoted one, and for shells that do not.
        matches = sorted(glob.glob(word, recursive=True))
        if not matches:
            yield _missing(word, "no file has a name of this pattern")
        for match in matches:
            yield from _named(match)


def _missing(word: str, why: str) -> ImageSource:
    def read() -> Pixels:
        raise UnreadableImageError(word, why)

    return ImageSource(word, read)


def _from_stdin() -> Pixels:
    data = read_bytes(sys.stdin.buffer, STDIN)
    if not data:
        raise UnreadableImageError(STDIN, "standard input is empty; send the bytes of one image")
    return decode_image(data, STDIN)

"""The images that words on a command line name: files, folders, patterns, standard input and packaged images.

A word that names nothing gives one picture that cannot be read, so that the others are still answered.
"""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lapis.data.folder import is_image
from lapis.data.slice import SLICE, named_image
from lapis.preprocess import Pixels, UnreadableImageError, decode_image, read_bytes, read_file, read_image

STDIN = "-"


@dataclass(frozen=True)
class Picture:
    """An image by its name. `read` gives its pixels (height, width, 3), or raises a LapisError."""

    name: str
    read: Callable[[], Pixels]


def find_pictures(words: Sequence[str]) -> list[Picture]:
    """The pictures of all words, in their order; those of a folder or a pattern sorted by name."""
    return [picture for word in words for picture in _named(word)]


def _named(word: str) -> Iterator[Picture]:
    path = Path(word)
    if word == STDIN:
        yield Picture(STDIN, _from_stdin)
    elif word.startswith(SLICE):
        yield Picture(word, lambda: named_image(word)[0])
    elif path.is_dir():
        yield from _in_folder(path)
    elif path.exists() or not glob.has_magic(word):
        yield Picture(word, partial(read_image, word))
    else:
        # Shells expand patterns themselves; this is for a quoted one, and for shells that do not.
        found = sorted(glob.glob(word, recursive=True))
        if not found:
            yield _missing(word, "no file has a name of this pattern")
        for match in found:
            yield from _named(match)


def _in_folder(folder: Path) -> Iterator[Picture]:
    """Every image in the folder and in those below it, without hidden ones."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(place, name) for name in names if is_image(Path(name))]
    if not found:
        yield _missing(str(folder), "this folder holds no images")
    for path in sorted(found):
        yield Picture(str(path), partial(read_file, path))


def _missing(word: str, why: str) -> Picture:
    def read() -> Pixels:
        raise UnreadableImageError(word, why)

    return Picture(word, read)


def _from_stdin() -> Pixels:
    data = read_bytes(sys.stdin.buffer, STDIN)
    if not data:
        raise UnreadableImageError(STDIN, "standard input is empty; send the bytes of one image")
    return decode_image(data, STDIN)

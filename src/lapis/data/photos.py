"""Photographs that come with the package, for demonstrations; assets/photos/CREDITS.csv has authors and licences."""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import NamedTuple

from lapis.preprocess import Pixels, decode_image


class Photo(NamedTuple):
    """A photograph (height, width, 3), what it shows, and whose it is."""

    image: Pixels
    file: str
    shows: str
    credit: str


def load_photos() -> list[Photo]:
    """The packaged photographs."""
    folder = files("lapis") / "assets" / "photos"
    rows = csv.DictReader((folder / "CREDITS.csv").read_text(encoding="utf-8").splitlines())
    return [
        Photo(
            decode_image((folder / row["file"]).read_bytes(), row["file"]),
            row["file"],
            row["shows"],
            f"{row['author']}, {row['licence']}",
        )
        for row in rows
    ]

"""The packaged photographs are small, and each has an author and a licence."""

from __future__ import annotations

import csv
from pathlib import Path

import lapis
from lapis.data.packaged import load_photos

FOLDER = Path(lapis.__file__).parent / "assets/photos"


def test_every_photograph_is_credited_small_and_readable() -> None:
    rows = list(csv.DictReader((FOLDER / "CREDITS.csv").read_text(encoding="utf-8").splitlines()))
    files = sorted(FOLDER.glob("*.webp"))
    assert [file.name for file in files] == sorted(row["file"] for row in rows)
    assert all(row["author"] and row["licence"] and row["source"] and row["shows"] for row in rows)
    assert sum(file.stat().st_size for file in files) < 150_000
    photos = load_photos()
    assert all(min(photo.image.shape[:2]) == 256 and photo.image.shape[2] == 3 for photo in photos)
    assert len({photo.shows for photo in photos}) == len(photos) >= 5

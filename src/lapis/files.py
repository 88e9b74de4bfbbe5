"""Atomic writing: a file is complete or does not exist."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from lapis.errors import LapisError

# The name of a file that is still being written; a killed process may leave one.
PARTIAL = ".partial-"


def write_atomically(path: Path, content: bytes | Callable[[BinaryIO], None]) -> None:
    """Write beside the target, flush to disk, then rename: a reader sees the old file or the new one, never a part.

    `content` is the bytes, or a function that writes them to an open file.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{PARTIAL}{path.name}.")
    except OSError as error:
        raise LapisError(f"cannot write {path}: {error.strerror}; choose a folder that can be written") from error
    try:
        with os.fdopen(handle, "wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise LapisError(f"cannot write {path}: {error.strerror}; the old file is unchanged") from error
        raise


def remove_unfinished(folder: Path) -> None:
    """Remove the incomplete files that a killed process left."""
    for leftover in folder.glob(f"{PARTIAL}*"):
        leftover.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write text atomically, as UTF-8."""
    write_atomically(path, text.encode())


def csv_text(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """One line per row below a line of names: `columns`, or those of the first row."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns if columns is not None else list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def save_figure(path: Path, figure: Any, **options: Any) -> None:
    """Write a matplotlib figure atomically, as PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", **{"dpi": 120, **options})
    write_atomically(path, buffer.getvalue())

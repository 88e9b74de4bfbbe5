"""Atomic writing: a file is complete or does not exist, and a failure leaves no folder behind.

JSON that others may have written is read here too.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal

from lapis.errors import LapisError

# The name of a file that is still being written; a killed process may leave one.
PARTIAL = ".partial-"
# Digits of an integer in JSON: enough for any count or offset, and fast to convert.
MAX_DIGITS = 19


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """Make a folder and its parents for the block; if the block fails, those that were made and are empty are removed.

    A folder that cannot be made is the block's first failure.
    """
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for place in missing:
            with suppress(OSError):
                place.rmdir()
        raise


# How a file of each kind that commands write begins; a table is also known by its name.
_STARTS = {"page": b"<!doctype html", "ONNX file": b"\x08"}
Kind = Literal["page", "ONNX file", "table", "packed network"]


def check_folder(folder: Path, option: str, inputs: Iterable[str | Path | None] = ()) -> None:
    """Refuse a folder that cannot be made or written, or that is an input; nothing is made."""
    obstacle = _obstacle(folder)
    if obstacle:
        raise LapisError(f"cannot make the folder {folder}: {obstacle}; choose another {option}")
    for source in inputs:
        if source is not None and _same(folder, Path(source)):
            raise LapisError(f"{folder} is also an input; choose another {option}")


def check_target(
    path: Path | None, option: str, kind: Kind, inputs: Iterable[str | Path | None] = (), force: bool = False
) -> None:
    """Refuse a file that cannot be written, before work that would be lost; nothing is made. None is no file.

    Refused are: a file whose folder does not exist; one of the `inputs`, by whatever name or link, and every file in
    one that is a folder; and, unless `force`, a file that is there and is of another kind.
    """
    if path is None:
        return
    if path.is_dir():
        raise LapisError(f"{path} is a folder; give {option} the name of a file")
    _refuse_device(path)
    if not path.parent.exists():
        raise LapisError(f"there is no folder {path.parent}; make it first, or choose another {option}")
    obstacle = _obstacle(path.parent)
    if obstacle:
        raise LapisError(f"cannot write {path}: {obstacle}; choose another {option}")
    if not path.exists():
        return
    for source in inputs:
        if source is not None and _holds(Path(source), path):
            raise LapisError(f"{path} is an input, which writing would destroy; choose another {option}")
    if not force and not _is_of_kind(path, kind):
        raise LapisError(f"{path} is there and is not a {kind}; choose another {option}, or add --force to replace it")


def _holds(source: Path, path: Path) -> bool:
    """Whether a file is the source, or lies in it."""
    if _same(source, path) or (source.is_dir() and source.resolve() in path.resolve().parents):
        return True
    # Only a file with several names can be in a folder that it is not below.
    return source.is_dir() and path.stat().st_nlink > 1 and any(_same(file, path) for file in source.rglob("*"))


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _is_of_kind(path: Path, kind: Kind) -> bool:
    with path.open("rb") as file:
        head = file.read(4096)
    if not head or (kind in _STARTS and head.lower().startswith(_STARTS[kind].lower())):
        return True
    if kind == "table":
        names = head.partition(b"\n")[0]
        return path.suffix == ".csv" and names.isascii() and b"," in names
    return kind == "packed network" and b'{"__metadata__":{"lapis_packed"' in head


def _refuse_device(path: Path) -> None:
    """A file is renamed over its target, which would replace /dev/null by a file where the user may do that."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise LapisError(f"{path} is a device or a pipe, and only files are written; give the name of a file")


def _obstacle(folder: Path) -> str:
    """Why nothing can be written to a folder, or to one that is still to be made; empty if it can."""
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        return f"{nearest} is a file"
    return "" if os.access(nearest, os.W_OK | os.X_OK) else f"{nearest} is read-only"


def write_atomically(path: str | Path, content: bytes | Callable[[BinaryIO], None]) -> None:
    """Write beside the target, flush to disk, then rename: a reader sees the old file or the new one, never a part.

    `content` is the bytes, or a function that writes them to an open file.
    """
    path, advice = Path(path), "choose a folder that can be written"
    _refuse_device(path)
    try:
        with new_folder(path.parent):
            # A short name, so that it fits wherever the final one does.
            advice, temporary = "the old file is unchanged", path.parent / f"{PARTIAL}{os.urandom(8).hex()}"
            try:
                # Opened as new, with the permissions that the user's umask gives.
                with temporary.open("xb") as file:
                    if callable(content):
                        content(file)
                    else:
                        file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)
    except OSError as error:
        raise LapisError(f"cannot write {path}: {error.strerror}; {advice}") from error


def remove_unfinished(folder: Path) -> None:
    """Remove the incomplete files that a killed process left; a folder of such a name is not ours."""
    for leftover in folder.glob(f"{PARTIAL}*"):
        if leftover.is_symlink() or not leftover.is_dir():
            leftover.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write text atomically, as UTF-8; bytes of a file's name that are no text become escapes."""
    write_atomically(path, text.encode(errors="backslashreplace"))


def csv_text(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """One line per row below a line of names: `columns`, or those of the first row.

    A word that a spreadsheet would run as a formula, such as the file name `=1+1.png`, gets an apostrophe before it.
    """
    import csv  # few need it, and it takes a while

    text = io.StringIO()
    writer = csv.DictWriter(text, columns if columns is not None else list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: f"'{cell}" if _is_formula(cell) else cell for name, cell in row.items()})
    return text.getvalue()


def _is_formula(cell: object) -> bool:
    return isinstance(cell, str) and len(cell) > 1 and cell[0] in "=+-@\t\r"


def save_figure(path: Path, figure: Any, **options: Any) -> None:
    """Write a matplotlib figure atomically, as PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", **{"dpi": 120, **options})
    write_atomically(path, buffer.getvalue())


def parse_json(text: str | bytes, what: str, **hooks: Any) -> Any:
    """Parse JSON that others may have written; every way to fail is one error, which starts with `what`."""
    try:
        return json.loads(text, **{"parse_int": _short_integer, **hooks})
    except LapisError as error:
        raise LapisError(f"{what} {error}") from error
    except (ValueError, RecursionError) as error:
        raise LapisError(f"{what} is not JSON ({type(error).__name__})") from error


def read_json(path: str | Path) -> Any:
    """The content of a JSON file."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise LapisError(f"cannot read {path}: {error.strerror}") from error
    return parse_json(data, str(path))


def _short_integer(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_DIGITS:
        raise LapisError(f"holds an integer of {len(digits)} digits; at most {MAX_DIGITS} are allowed")
    return int(digits)

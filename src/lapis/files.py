"""Files that are whole or not there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from lapis.errors import LapisError


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside the target, flush to disk, then rename: a reader sees the old file or the new one, never a part."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise LapisError(f"cannot write {path}: {error.strerror}; choose a folder that can be written") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise LapisError(f"cannot write {path}: {error.strerror}; what was there before is untouched") from error
        raise

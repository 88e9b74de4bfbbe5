"""A run's folder belongs to one run at a time.

The lock is the system's: it ends with the process that holds it, however that ends, so nothing has to be cleaned up
after a killed run. It is a record lock, which the processes that read images do not inherit.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lapis._util.files import check_folder, new_folder
from lapis._util.run_layout import LOCK_FILE
from lapis.errors import LapisError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Make the folder, and keep other processes out of it for the block; a block that fails leaves no empty folder."""
    path = folder / LOCK_FILE
    check_folder(folder, "--out")
    with new_folder(folder):
        file = _locked(path)
        try:
            yield
        finally:
            # Removed while it is still locked, so that nobody else can lose a lock by it.
            with suppress(OSError):
                path.unlink()
            os.close(file)


def _locked(path: Path) -> int:
    while True:
        file = open_own_file(path, os.O_RDWR)
        try:
            if fcntl is not None:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(file, 20).decode("ascii", "replace").strip() or "unknown"
            os.close(file)
            raise LapisError(
                f"another run is at work in {path.parent} (process {holder}); wait until it ends, stop it, or choose "
                "another --out"
            ) from error
        # The run before may have removed the file between these two calls.
        if path.exists() and os.path.samestat(os.fstat(file), path.stat()):
            os.ftruncate(file, 0)
            os.write(file, f"{os.getpid()}\n".encode())
            return file
        os.close(file)


def open_own_file(path: Path, flags: int) -> int:
    """Open or make a file of ours in a folder that others can write to; a link or a device there is refused."""
    try:
        file = os.open(path, flags | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o644)
        seen = os.fstat(file)
        if stat.S_ISREG(seen.st_mode) and seen.st_nlink <= 1:
            return file
        os.close(file)
    except OSError as error:
        if not path.is_symlink() and (path.is_file() or not path.exists()):
            raise LapisError(f"cannot write {path}: {error.strerror}; choose another --out") from error
    raise LapisError(
        f"{path} is a link, a folder or a device, and writing to it could destroy another file; remove it, or choose "
        "another --out"
    )

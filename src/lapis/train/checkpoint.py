"""The state of a run on disk: everything that decides the next step, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch

from lapis.errors import LapisError

STATE_FILE = "state.pt"
VERSION = 1
PARTIAL = ".partial-"


def save_state(folder: Path, state: dict[str, Any]) -> None:
    """Write beside the target, flush to disk, rename; on any failure the last good state stays as it was."""
    target = folder / STATE_FILE
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=PARTIAL)
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save({"version": VERSION, **state}, file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except (OSError, RuntimeError) as error:
        Path(temporary).unlink(missing_ok=True)
        kept = f"the last good one, {target}, is untouched" if target.exists() else "there is no earlier one"
        raise LapisError(f"cannot save the run's state in {folder}: {reason(error)}; {kept}") from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load_state(folder: Path) -> dict[str, Any]:
    """The state that `save_state` wrote; nothing in the file is executed."""
    path = folder / STATE_FILE
    if not path.is_file():
        raise LapisError(f"{folder} holds no run to resume: {STATE_FILE} is missing; start without --resume")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a damaged file
        raise LapisError(f"{path} cannot be read: {reason(error)}") from error
    if not isinstance(state, dict) or state.get("version") != VERSION:
        raise LapisError(f"{path} is not a state of this version ({VERSION}) of Lapis")
    return state


def sweep(folder: Path) -> None:
    """Remove what a killed process left half-written."""
    for leftover in folder.glob(f"{PARTIAL}*"):
        leftover.unlink(missing_ok=True)


def reason(error: BaseException) -> str:
    """One line that says why, from an error or from the one that caused it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str(error).splitlines()[0] if str(error) else type(error).__name__

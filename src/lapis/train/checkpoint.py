"""The state of a run on disk: everything that the next step depends on, written atomically."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from lapis.errors import LapisError
from lapis.files import write_atomically
from lapis.runs import STATE_FILE

VERSION = 1


def save_state(folder: Path, state: dict[str, Any]) -> None:
    """Write the state atomically; if that fails, the last good one stays."""
    target = folder / STATE_FILE
    try:
        write_atomically(target, lambda file: torch.save({"version": VERSION, **state}, file))
    except (LapisError, RuntimeError) as error:
        kept = f"the last good one, {target}, is untouched" if target.exists() else "there is no earlier one"
        raise LapisError(f"cannot save the run's state in {folder}: {reason(error)}; {kept}") from error


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


def reason(error: BaseException) -> str:
    """The reason in one line, from an error or from the error that caused it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str(error).splitlines()[0] if str(error) else type(error).__name__

"""The state of a run on disk: everything that the next step depends on, written atomically."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from lapis._util.files import PARTIAL, write_atomically
from lapis._util.run_layout import PREVIOUS_STATE_FILE, STATE_FILE
from lapis.errors import LapisError

VERSION = 1


def save_state(folder: Path, state: dict[str, Any]) -> None:
    """Write the state atomically and keep the one before; if that fails, the last good one stays."""
    target, second_name = folder / STATE_FILE, folder / f"{PARTIAL}{PREVIOUS_STATE_FILE}"
    try:
        _name_again(target, second_name)
        write_atomically(target, lambda file: torch.save({"version": VERSION, **state}, file))
        if second_name.exists():
            os.replace(second_name, folder / PREVIOUS_STATE_FILE)
    except (LapisError, RuntimeError, OSError) as error:
        second_name.unlink(missing_ok=True)
        kept = f"the last good one, {target}, is untouched" if target.exists() else "there is no earlier one"
        raise LapisError(
            f"cannot save the run's state in {folder}: {reason(error)}; {kept}; make room, then --resume"
        ) from error


def load_state(folder: Path, report: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """The state that `save_state` wrote last, or the one before if that is damaged, which `report` is told.

    Nothing in the file is executed.
    """
    path, previous = folder / STATE_FILE, folder / PREVIOUS_STATE_FILE
    if not path.is_file():
        raise LapisError(f"{folder} holds no run to resume: {STATE_FILE} is missing; start without --resume")
    try:
        return _load(path)
    except LapisError as error:
        if not previous.is_file():
            raise
        state = _load(previous)
        report(f"{error}; continuing from the state before it, of step {state['progress']['step']}")
        return state


def drop_last_state(folder: Path) -> None:
    """Put the state before in the place of a damaged last one, which would become the one before at the next save."""
    os.replace(folder / PREVIOUS_STATE_FILE, folder / STATE_FILE)


def _name_again(target: Path, second_name: Path) -> None:
    """Give the last state a second name; where the file system has no links, copy it."""
    second_name.unlink(missing_ok=True)
    if target.exists():
        try:
            os.link(target, second_name)
        except OSError:
            write_atomically(second_name, target.read_bytes())


def _load(path: Path) -> dict[str, Any]:
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

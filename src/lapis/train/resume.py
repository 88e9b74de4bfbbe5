"""Runs that are parts of a longer job: the command that started the job also continues it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lapis._util.files import read_json
from lapis._util.run_layout import RECIPE_FILE, STATE_FILE, SUMMARY_FILE
from lapis.errors import LapisError
from lapis.train.distributed import Processes
from lapis.train.loop import train
from lapis.train.recipe import Recipe, differences


def train_or_resume(
    recipe: Recipe, data: Path | None, folder: Path, processes: Processes, quiet: bool = False
) -> dict[str, Any]:
    """The summary of a run in `folder`: a finished run is not repeated, an interrupted one is resumed."""
    if (folder / SUMMARY_FILE).is_file():
        return finished_summary(folder, recipe)
    return train(recipe, data, folder, processes, (folder / STATE_FILE).exists(), quiet)


def finished_summary(folder: Path, recipe: Recipe) -> dict[str, Any]:
    """The summary of a finished run of this recipe."""
    saved, summary = (read_record(folder / name) for name in (RECIPE_FILE, SUMMARY_FILE))
    changed = differences(saved, json.loads(json.dumps(recipe.to_dict())))
    if changed:
        raise LapisError(
            f"{folder} holds a finished run with other settings: {'; '.join(changed)}; choose another --out"
        )
    missing = [name for name in ("interrupted", "top1", "images", "steps", "seconds") if name not in summary]
    if missing:
        raise LapisError(f"{folder / SUMMARY_FILE} is damaged: it lacks {', '.join(missing)}; choose another --out")
    return summary


def read_record(path: Path) -> dict[str, Any]:
    """A JSON object that a run wrote."""
    record = read_json(path)
    if not isinstance(record, dict):
        raise LapisError(f"{path} is damaged: it holds no JSON object; choose another --out")
    return record

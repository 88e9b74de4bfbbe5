"""The state of a run: everything that its next step depends on, saved, restored and summed up in one place.

The file is written atomically and the one before it is kept, so that a run continues after any failure.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from lapis._util.files import PARTIAL, read_json, write_atomically
from lapis._util.run_layout import PREVIOUS_STATE_FILE, RECIPE_FILE, STATE_FILE, SUMMARY_FILE
from lapis.errors import LapisError
from lapis.nn.model import LapisViT
from lapis.train.distributed import reason
from lapis.train.recipe import Recipe, differences
from lapis.train.sparsity import DeadlineScheduler

VERSION = 1
# What a network's file says of its last evaluation.
SCORES = ("top1", "top5", "images", "evaluated", "activity")
# What a state file holds; a file that lacks any of it is damaged.
FIELDS = ("recipe", "progress", "objective", "optimizer", "deadlines", "average", "generator")


@dataclass
class Progress:
    """How far a run is: what a state file holds besides tensors."""

    step: int = 0
    best: float = -1.0
    seconds: float = 0.0
    # An evaluation at this step was interrupted and must be repeated.
    evaluation_due: bool = False
    # The record of the last evaluation.
    last: dict[str, Any] = field(default_factory=dict)
    # Training images that could not be read, one line each.
    unreadable: list[str] = field(default_factory=list)


class RunState:
    """Progress, weights, optimizer, deadlines and random numbers of a run."""

    def __init__(
        self, recipe: Recipe, student: LapisViT, objective: nn.Module, optimizer: torch.optim.Optimizer,
        deadlines: DeadlineScheduler,
    ) -> None:  # fmt: skip
        self.recipe, self.student, self.objective = recipe, student, objective
        self.optimizer, self.deadlines = optimizer, deadlines
        self.progress = Progress()
        decay = recipe.optim.average
        self.average = AveragedModel(student, multi_avg_fn=get_ema_multi_avg_fn(decay)) if decay else None

    @property
    def network(self) -> LapisViT:
        """The network that is tested and saved: the student, or the average of its weights."""
        if self.average is None:
            return self.student
        average = cast(LapisViT, self.average.module)
        # Deadlines are chosen, not averaged.
        average.set_min_code(self.student.config.min_code)
        return average

    def after_step(self) -> None:
        """Count a step that was taken."""
        self.progress.step += 1
        if self.average is not None:
            self.average.update_parameters(self.student)

    def save(self, folder: Path) -> None:
        """Write the state atomically and keep the one before; if that fails, the last good one stays."""
        state = {
            "version": VERSION,
            "recipe": self.recipe.to_dict(),
            "progress": asdict(self.progress),
            "objective": self.objective.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "deadlines": self.deadlines.state(),
            "average": None if self.average is None else self.average.state_dict(),
            "generator": torch.get_rng_state(),
        }
        target, second_name = folder / STATE_FILE, folder / f"{PARTIAL}{PREVIOUS_STATE_FILE}"
        try:
            _link(target, second_name)
            write_atomically(target, lambda file: torch.save(state, file))
            if second_name.exists():
                os.replace(second_name, folder / PREVIOUS_STATE_FILE)
        except (LapisError, RuntimeError, OSError) as error:
            second_name.unlink(missing_ok=True)
            kept = f"the last good one, {target}, is untouched" if target.exists() else "there is no earlier one"
            raise LapisError(
                f"cannot save the run's state in {folder}: {reason(error)}; {kept}; make room, then --resume"
            ) from error

    def restore(self, saved: dict[str, Any]) -> None:
        """Continue from what `save` wrote, on any number of processes."""
        try:
            self.objective.load_state_dict(saved["objective"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.deadlines.restore(saved["deadlines"])
            if self.average is not None:
                self.average.load_state_dict(saved["average"])
            self.progress = Progress(**saved["progress"])
            torch.set_rng_state(saved["generator"])
        except (RuntimeError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise LapisError(
                f"the saved state does not fit its recipe ({reason(error)}); replace {STATE_FILE} by "
                f"{PREVIOUS_STATE_FILE}, or start anew in another --out"
            ) from error

    def summary(self, total: int, out: Path) -> dict[str, Any]:
        progress = self.progress
        return {
            "recipe": self.recipe.name,
            "out": str(out),
            "interrupted": progress.step < total or progress.evaluation_due,
            "step": progress.step,
            "steps": total,
            "best_top1": max(progress.best, 0.0),
            "seconds": round(progress.seconds, 2),
            "unreadable": len(progress.unreadable),
            **{name: value for name, value in progress.last.items() if name not in ("step", "seconds", "unreadable")},
        }

    def metadata(self, class_names: tuple[str, ...]) -> dict[str, Any]:
        """What a network's file records about its training."""
        progress, data = self.progress, self.recipe.data
        return {
            "state": "trained",
            "recipe": self.recipe.name,
            "dataset": "cifar10" if data.dataset == "sample" else data.dataset,
            "preprocess": self.recipe.preprocess.to_dict(),
            "class_names": list(class_names),
            "step": progress.step,
            "scores": {name: progress.last[name] for name in SCORES if name in progress.last},
        }


def saved_state(folder: Path, recipe: Recipe, resume: bool, report: Callable[[str], None]) -> dict[str, Any] | None:
    """The state that a run continues from; None for a new run, which may not replace another."""
    if resume:
        state = load_state(folder, report)
        check_recipe(state["recipe"], recipe, folder)
        return state
    if (folder / STATE_FILE).exists():
        raise LapisError(f"{folder} holds a run already; continue it with --resume, or choose another --out")
    return None


def load_state(folder: Path, report: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """The state that `RunState.save` wrote last, or the one before if that is damaged, which `report` is told.

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


def finished_summary(folder: Path, recipe: Recipe) -> dict[str, Any]:
    """The summary of a finished run of this recipe."""
    saved, summary = (read_record(folder / name) for name in (RECIPE_FILE, SUMMARY_FILE))
    check_recipe(saved, recipe, folder)
    missing = [name for name in ("interrupted", "top1", "images", "steps", "seconds") if name not in summary]
    if missing:
        raise LapisError(f"{folder / SUMMARY_FILE} is damaged: it lacks {', '.join(missing)}; choose another --out")
    return summary


def check_recipe(saved: dict[str, Any], recipe: Recipe, folder: Path) -> None:
    """Refuse to continue with other settings than those that were saved."""
    changed = differences(saved, recipe.to_dict())
    if changed:
        raise LapisError(
            f"{folder} holds a run of another recipe: {'; '.join(changed)}; repeat that, or choose another --out"
        )


def read_record(path: Path) -> dict[str, Any]:
    """A JSON object that a run wrote."""
    record = read_json(path)
    if not isinstance(record, dict):
        raise LapisError(f"{path} is damaged: it holds no JSON object; choose another --out")
    return record


def _link(target: Path, second_name: Path) -> None:
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
    missing = [name for name in FIELDS if name not in state]
    if missing:
        raise LapisError(f"{path} is damaged: it lacks {', '.join(missing)}")
    return state

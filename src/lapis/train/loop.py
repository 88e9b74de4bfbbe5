"""The training loop: build a run from its recipe, take its steps, finish it; a stopped run continues bit for bit."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from lapis._util import run_layout as runs
from lapis._util.files import remove_unfinished, write_text
from lapis._util.progress import Display
from lapis._util.terminal import echo
from lapis.data.loader import Batch, TrainBatches
from lapis.energy import save_tally
from lapis.nn.checkpoint import save_network
from lapis.train import distributed
from lapis.train.datasets import calibration_images, note_unreadable, open_datasets
from lapis.train.distributed import Processes, StopRequest
from lapis.train.evaluate import evaluate_student
from lapis.train.log import Log, plot_curves
from lapis.train.objective import load_teacher, make_objective
from lapis.train.recipe import Recipe
from lapis.train.run_lock import lock_folder
from lapis.train.sparsity import DeadlineScheduler
from lapis.train.start import prepare_student
from lapis.train.state import RunState, finished_summary, saved_state
from lapis.train.step import OptimizerStep, make_optimizer


def train(
    recipe: Recipe,
    data: str | Path | None,
    out: str | Path,
    processes: Processes | None = None,
    resume: bool = False,
    quiet: bool = False,
) -> dict[str, Any]:
    """Run `recipe` to its end, or until it is stopped; the run's files are in `out`. Returns a summary.

    Without `processes` this process trains alone, on a GPU where there is one.
    """
    distributed.avoid_broken_amx()
    processes = processes or Processes(0, 1, distributed.choose_device("auto"))
    data, out = None if data is None else Path(data), Path(out)
    with lock_folder(out) if processes.first else nullcontext(), distributed.explain_lost_process(processes, out):
        damaged: list[str] = []
        saved = saved_state(out, recipe, resume, damaged.append)
        # Data, first weights and teacher are opened before anything is written: a failed start leaves no folder.
        run = Run(recipe, data, out, processes, quiet or not processes.first, saved is not None)
        if saved is not None:
            run.state.restore(saved)
        processes.barrier()  # no process writes before all have checked the folder
        if processes.first:
            if damaged:
                echo(*damaged, error=True)
                # The damaged state would become the one before at the next save.
                os.replace(out / runs.PREVIOUS_STATE_FILE, out / runs.STATE_FILE)
            remove_unfinished(out)
            write_text(out / runs.RECIPE_FILE, json.dumps(recipe.to_dict(), indent=2) + "\n")
        run.loop()
        return run.finish()


def train_or_resume(
    recipe: Recipe, data: Path | None, out: Path, processes: Processes, quiet: bool = False
) -> dict[str, Any]:
    """The summary of a run that is part of a longer job: a finished one is not repeated, an interrupted one resumed."""
    if (out / runs.SUMMARY_FILE).is_file():
        return finished_summary(out, recipe)
    return train(recipe, data, out, processes, (out / runs.STATE_FILE).exists(), quiet)


class Run:
    """One training run: built from its recipe, taken step by step, finished with a network and a summary."""

    def __init__(
        self, recipe: Recipe, data: Path | None, out: Path, processes: Processes, quiet: bool, restored: bool = False
    ) -> None:
        self.recipe, self.out, self.processes, self.quiet = recipe, out, processes, quiet
        optim, device = recipe.optim, processes.device
        self.train_images, self.evaluation_images = open_datasets(recipe.data, data)
        lanes = processes.world * optim.accumulate
        self.lanes = tuple(range(processes.rank, lanes, processes.world))
        self.batches = TrainBatches(
            self.train_images, recipe.augment, recipe.preprocess, optim.batch, recipe.seed, recipe.model.classes, lanes,
            recipe.data.workers, device,
        )  # fmt: skip
        self.total = max(1, round(optim.epochs * self.batches.steps))
        few = calibration_images(self.train_images, recipe, device)
        if not quiet:
            echo(f"{recipe.name}: preparing the network on {len(few)} images", error=True)
        teacher = load_teacher(recipe, device, len(self.train_images))
        student = prepare_student(recipe, few, teacher, restored)
        objective = make_objective(student, teacher, recipe, few)
        module, optimizer = processes.averaged(objective), make_optimizer(objective, optim)
        self.deadlines = DeadlineScheduler(student, recipe.sparsity, self.total, processes, few)
        self.step = OptimizerStep(
            optim, module, teacher, optimizer, self.deadlines, processes, self.total, self.batches.steps
        )
        self.state = RunState(recipe, student, objective, optimizer, self.deadlines)

    def loop(self) -> None:
        """Take all steps that are left, unless a signal stops the run; its state is saved then."""
        progress, checkpoint = self.state.progress, self.recipe.checkpoint
        evaluate_every = max(1, round(checkpoint.evaluate_epochs * self.batches.steps))
        with (
            StopRequest() as stop,
            Display(self.recipe.name, self.total, progress.step, self.quiet) as display,
            Log(self.out, progress.step, progress.seconds, self.processes.first) as log,
        ):
            display.update(progress.step, "first steps")
            if progress.evaluation_due and not self.evaluate(log, stop, display):
                return
            saved_at, note = time.monotonic(), ""
            for parts in self.remaining_batches():
                watch = (progress.step + 1) % checkpoint.log_steps == 0 or progress.step + 1 == self.total
                row = self.step(parts, progress.step, watch)
                self.state.after_step()
                if watch:
                    log.step(row, self.recipe.optim.batch, self.deadlines.activity)
                    note = log.note(row, progress.best)
                display.update(progress.step, note)
                note_unreadable(parts, progress.unreadable, len(self.train_images), self.out, display)
                stopping = self.processes.any(stop.requested)
                tested = progress.step % evaluate_every == 0 or progress.step == self.total
                if tested:
                    progress.evaluation_due = True
                    stopping = stopping or not self.evaluate(log, stop, display)
                by_step = checkpoint.save_steps and progress.step % checkpoint.save_steps == 0
                by_clock = time.monotonic() - saved_at >= checkpoint.save_minutes * 60
                if stopping or tested or by_step or by_clock:
                    progress.seconds = log.seconds
                    if self.processes.first:
                        self.state.save(self.out)
                    saved_at = time.monotonic()
                if stopping:
                    return

    def remaining_batches(self) -> Iterator[tuple[Batch, ...]]:
        """This process's share of every global batch that is left."""
        progress = self.state.progress
        while progress.step < self.total:
            epoch, within = divmod(progress.step, self.batches.steps)
            for parts in self.batches.epoch(epoch, within, self.lanes):
                yield parts
                if progress.step >= self.total:
                    return

    def evaluate(self, log: Log, stop: StopRequest, display: Display) -> bool:
        """Test, log, and keep the best network; False if a stop was requested meanwhile: a resumed run tests again."""
        progress, network = self.state.progress, self.state.network
        show = partial(display.update, progress.step)
        scores = evaluate_student(network, self.evaluation_images, self.recipe, self.processes, stop, show)
        if scores is None:
            return False
        progress.last = {"step": progress.step, "epoch": progress.step / self.batches.steps, **scores.as_dict()}
        progress.last |= {"evaluated": self.recipe.data.evaluated, "seconds": round(log.seconds, 2)}
        progress.evaluation_due = False
        better = scores.top1 > progress.best and self.deadlines.arrived(progress.step)
        progress.best = scores.top1 if better else progress.best
        display.print_line(log.evaluation(progress.last))
        if self.processes.first and scores.tally.images:
            save_tally(self.out / runs.ACTIVITY_FILE, scores.tally, network.config)
        if self.processes.first and better:
            save_network(self.out / runs.BEST_FILE, network, self.state.metadata(self.train_images.classes))
        return True

    def finish(self) -> dict[str, Any]:
        """The summary; for a run that reached its end, with the last network and the curves."""
        summary = self.state.summary(self.total, self.out)
        if self.processes.first and not summary["interrupted"]:
            save_network(self.out / runs.LAST_FILE, self.state.network, self.state.metadata(self.train_images.classes))
            plot_curves(self.out, self.recipe.name)
            write_text(self.out / runs.SUMMARY_FILE, json.dumps(summary, indent=2) + "\n")
        return summary

"""The training loop: it trains the network of a recipe. An interrupted run continues with exactly the same steps."""

from __future__ import annotations

import inspect
import json
import math
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lapis._util.files import check_folder, remove_unfinished, write_text
from lapis._util.metrics import Accuracy
from lapis._util.progress import Display
from lapis._util.run_layout import (
    ACTIVITY_FILE,
    BEST_FILE,
    LAST_FILE,
    RECIPE_FILE,
    STATE_FILE,
    SUMMARY_FILE,
    TRAINED_SLICE,
    UNREADABLE_FILE,
)
from lapis._util.terminal import echo
from lapis.convert.evaluated import Evaluated
from lapis.data.images import Images, spread
from lapis.data.loader import UNREADABLE_SHARE, Batch, TestBatches, TrainBatches
from lapis.energy import energy_of, save_tally
from lapis.errors import LapisError
from lapis.native import CodesError
from lapis.nn.basis import find_sparse_basis
from lapis.nn.calibrate import is_calibrated
from lapis.nn.checkpoint import save_network
from lapis.nn.lift import ignore_mean_values, lift
from lapis.nn.model import LapisViT
from lapis.nn.pixels import normalise
from lapis.train.checkpoint import drop_last_state, load_state, reason, save_state
from lapis.train.curves import plot_curves
from lapis.train.distributed import Processes, choose_device
from lapis.train.evaluate import evaluate
from lapis.train.hold import hold_folder
from lapis.train.log import Log
from lapis.train.objective import Objective, Terms
from lapis.train.optim import Average, learning_rate, make_optimizer, set_learning_rate
from lapis.train.processor import spare_matrix_unit
from lapis.train.recipe import Recipe, completed, differences
from lapis.train.sets import open_sets, trained_slice
from lapis.train.signals import StopRequest
from lapis.train.sparsity import Meter, Silencer, activities, mean_activity
from lapis.train.start import draw_queries_and_keys, start_network
from lapis.train.teacher import load_teacher

TEST_BATCH = 100


class _StoppedError(Exception):
    """The run must stop in the middle of an evaluation."""


@dataclass
class Progress:
    """What a state file holds besides tensors."""

    step: int = 0
    best: float = -1.0
    seconds: float = 0.0
    # An evaluation at this step was interrupted and must be repeated.
    evaluation_due: bool = False
    last: dict[str, Any] = field(default_factory=dict)


# torch 2.13 renamed the argument and warns of the old name.
_SYNC_BUFFERS = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")
    if name in inspect.signature(DistributedDataParallel).parameters
)


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
    spare_matrix_unit()
    processes = processes or Processes(0, 1, choose_device("auto"))
    data, out = None if data is None else Path(data), Path(out)
    if resume and not out.is_dir():
        raise LapisError(f"{out} holds no run to resume; start without --resume")
    check_folder(out, "--out")
    with hold_folder(out) if processes.first else nullcontext():
        try:
            return _train(recipe, data, out, processes, resume, quiet)
        except RuntimeError as error:
            if not processes.lost(error):
                raise
            raise LapisError(
                f"another process of this run is gone ({reason(error)}); the last saved state in {out} is whole: start "
                "all processes again with --resume"
            ) from error


def _train(
    recipe: Recipe, data: Path | None, out: Path, processes: Processes, resume: bool, quiet: bool
) -> dict[str, Any]:
    if not resume and (out / STATE_FILE).exists():
        raise LapisError(f"{out} holds a run already; continue it with --resume, or choose another --out")
    damaged: list[str] = []
    state = load_state(out, damaged.append) if resume else None
    if processes.first and damaged:
        echo(*damaged, error=True)
    if state is not None:
        changed = differences(completed(state["recipe"]), recipe.to_dict())
        if changed:
            raise LapisError(
                f"{out} was started with another recipe: {'; '.join(changed)}; resume it with the same one"
            )
    # Data, first weights and teacher are opened before anything is written: a failed start leaves no folder.
    run = Run(recipe, data, out, processes, quiet or not processes.first)
    if state is not None:
        run.restore(state)
    processes.barrier()  # no process writes before all have checked the folder
    if processes.first:
        if damaged:
            drop_last_state(out)
        prepare_folder(out, recipe)
    return run.run()


def prepare_folder(out: Path, recipe: Recipe) -> None:
    """Make the run's folder with its recipe, without what a killed run left unfinished."""
    remove_unfinished(out)
    write_text(out / RECIPE_FILE, json.dumps(recipe.to_dict(), indent=2) + "\n")


class Run:
    """The parts of one training run, put together from its recipe."""

    def __init__(self, recipe: Recipe, data: Path | None, out: Path, processes: Processes, quiet: bool) -> None:
        self.recipe, self.out, self.processes, self.quiet = recipe, out, processes, quiet
        optim, device = recipe.optim, processes.device
        self.train_images, self.test_images = open_sets(recipe.data, data)
        lanes = processes.world * optim.accumulate
        self.lanes = tuple(range(processes.rank, lanes, processes.world))
        self.batches = TrainBatches(
            self.train_images, recipe.augment, recipe.preprocess, optim.batch, recipe.seed, recipe.model.classes, lanes,
            recipe.data.workers, device,
        )  # fmt: skip
        self.steps_per_epoch = self.batches.steps
        self.total = max(1, round(optim.epochs * self.steps_per_epoch))
        self.warmup = round(optim.warmup_epochs * self.steps_per_epoch)
        self.evaluate_every = max(1, round(recipe.keep.evaluate_epochs * self.steps_per_epoch))
        few = self._calibration_images()
        first = start_network(recipe.model, recipe.start, recipe.seed).to(device)
        if recipe.draw_qk:
            draw_queries_and_keys(first)
        student = self._calibrated(first, few)
        self.teacher = load_teacher(recipe, device)
        teacher_width = None if self.teacher is None else self.teacher.model.config.width
        self.objective = Objective(student, recipe.distill, teacher_width).to(device).train()
        if self.teacher is not None and recipe.distill.feature:
            self.objective.align(few, self.teacher(few))
        student.recompute = optim.recompute
        self.module: nn.Module = self.objective
        if processes.world > 1:
            self.module = DistributedDataParallel(self.objective, **{_SYNC_BUFFERS: False})  # type: ignore[arg-type]
        self.optimizer = make_optimizer(self.objective, optim)
        self.average = Average(student, optim.ema) if optim.ema else None
        self.meter = Meter(student, processes)
        self.silencer = Silencer(student, recipe.sparsity, self.total)
        self.silencer.weigh(few, self.meter)
        self.meter.smoothing = bool(recipe.sparsity.penalty and self.silencer.goals)
        self.meter.comparing = optim.pull > 0
        self.activity: dict[str, float] = {}
        self.progress = Progress()
        self.unreadable: set[str] = set()
        self.trained_slice = trained_slice(recipe)

    @property
    def student(self) -> LapisViT:
        return self.objective.student

    @property
    def evaluated(self) -> LapisViT:
        """The network that is tested and saved."""
        return self.student if self.average is None else self.average.model

    @torch.no_grad()
    def _calibrated(self, model: LapisViT, images: Tensor) -> LapisViT:
        """Find the steps and taus that the first weights lack, and the axes where the recipe asks for them."""
        if not is_calibrated(model):
            if self.recipe.lift:
                model = lift(model, [images])
            else:
                model.eval()(images)
        if self.recipe.ignore_mean:
            ignore_mean_values(model, images)
        if self.recipe.sparsity.basis:
            find_sparse_basis(model, images)
        return model

    def _calibration_images(self) -> Tensor:
        """Training images without augmentation."""
        few = spread(self.train_images, self.recipe.data.calibrate)
        pixels = torch.cat([batch.pixels for batch in self._test_batches(few, 0, 1)])
        return normalise(pixels, self.recipe.preprocess)

    def run(self) -> dict[str, Any]:
        started = time.monotonic() - self.progress.seconds
        log = Log(self.out, self.progress.step) if self.processes.first else None
        stopped = False
        with StopRequest() as stop, Display(self.recipe.name, self.total, self.progress.step, self.quiet) as display:
            try:
                self._steps(started, log, stop, display)
                stopped = self.progress.step < self.total or self.progress.evaluation_due
            finally:
                if log is not None:
                    log.close()
        summary = self._summary(stopped)
        if self.processes.first and not stopped:
            save_network(self.out / LAST_FILE, self.evaluated, self._metadata())
            plot_curves(self.out, self.recipe.name)
            write_text(self.out / SUMMARY_FILE, json.dumps(summary, indent=2) + "\n")
        return summary

    def _steps(self, started: float, log: Log | None, stop: StopRequest, display: Display) -> None:
        progress, keep = self.progress, self.recipe.keep
        saved_at, mark, marked_step = time.monotonic(), time.monotonic(), progress.step
        if progress.evaluation_due and not self._evaluate(log, stop, display, started):
            return
        while progress.step < self.total:
            epoch, within = divmod(progress.step, self.steps_per_epoch)
            for parts in self.batches.epoch(epoch, within, self.lanes):
                logged = (progress.step + 1) % keep.log_steps == 0 or progress.step + 1 == self.total
                values, norm, rate = self._step(parts, logged)
                progress.step += 1
                now = time.monotonic()
                if logged:
                    speed = (progress.step - marked_step) * self.recipe.optim.batch / max(1e-9, now - mark)
                    mark, marked_step = now, progress.step
                    self._log_step(log, values, norm, rate, speed, now - started)
                    display.update(progress.step, _note(values, mean_activity(self.activity), speed, progress.best))
                self._note_unreadable(parts, display)
                stopping = self.processes.any(stop.requested)
                if progress.step % self.evaluate_every == 0 or progress.step == self.total:
                    progress.evaluation_due = True
                    if not stopping:
                        stopping = not self._evaluate(log, stop, display, started)
                        mark = time.monotonic()
                    saved_at = -math.inf
                by_step = keep.save_steps and progress.step % keep.save_steps == 0
                by_clock = time.monotonic() - saved_at >= keep.save_minutes * 60
                if stopping or by_step or by_clock:
                    self._save(time.monotonic() - started)
                    saved_at = time.monotonic()
                if stopping:
                    display.print_line(
                        f"stopped at step {progress.step} of {self.total}, saved; continue with --resume"
                    )
                    return
                if progress.step >= self.total:
                    break

    def _step(self, parts: tuple[Batch, ...], logged: bool) -> tuple[dict[str, float], float, float]:
        """One optimizer step on this process's share of a global batch."""
        optim, due = self.recipe.optim, self.silencer.due(self.progress.step)
        if logged or due:
            self.meter.start()
        # Compiled blocks tell the meter nothing.
        self.student.compiled = optim.compile and not (logged or due)
        rate = learning_rate(self.progress.step, self.total, self.warmup, optim.lr)
        set_learning_rate(self.optimizer, rate)
        self.optimizer.zero_grad(set_to_none=True)
        sums: Tensor | None = None
        for index, part in enumerate(parts):
            with self._local_gradients(last=index == len(parts) - 1):
                try:
                    terms = self._with_penalties(self._forward(part))
                except CodesError as error:
                    # A quantizer's codes are integers unless its input is NaN, and then the loss is NaN too.
                    raise self._diverged(math.nan) from error
                (terms.loss / len(parts)).backward()
            values = torch.stack([value.detach() for value in terms])
            sums = values if sums is None else sums + values
        assert sums is not None
        norm = nn.utils.clip_grad_norm_(self.objective.parameters(), optim.clip or math.inf)
        self.optimizer.step()
        if logged or due:
            self._count_spikes(due)
        if self.average is not None:
            self.average.update(self.student)
        means = self.processes.mean(sums / len(parts)).tolist()
        if not math.isfinite(means[0]):
            raise self._diverged(means[0])
        return dict(zip(Terms._fields, means, strict=True)), float(norm), rate

    def _with_penalties(self, terms: Terms) -> Terms:
        if self.meter.comparing:
            terms = terms._replace(loss=terms.loss + self.recipe.optim.pull * self.meter.query_key_gap())
        if not self.meter.smoothing:
            return terms
        penalty = self.silencer.penalty(self.progress.step, self.meter.smooth_activities())
        return terms._replace(loss=terms.loss + penalty, silence=penalty.detach())

    def _count_spikes(self, due: bool) -> None:
        counts = self.meter.stop()
        if due:
            self.silencer.update(self.progress.step, counts)
            if self.average is not None:
                self.average.copy_silence(self.student)
        self.activity = activities(self.student, counts)

    def _diverged(self, loss: float) -> LapisError:
        return LapisError(
            f"the loss is {loss} at step {self.progress.step + 1}; the state that was saved before is unchanged: "
            "start again with a lower optim.lr"
        )

    def _local_gradients(self, last: bool) -> AbstractContextManager[None]:
        """Gradients are averaged over processes once, with the last part of a batch."""
        if isinstance(self.module, DistributedDataParallel) and not last:
            return self.module.no_sync()
        return nullcontext()

    def _forward(self, part: Batch) -> Terms:
        images, targets = part.images, part.targets
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.recipe.optim.precision == "bf16"):
            teacher_output = None if self.teacher is None else self.teacher(images)
            terms: Terms = self.module(images, targets, teacher_output)
        return terms

    def _log_step(
        self, log: Log | None, values: dict[str, float], norm: float, rate: float, speed: float, seconds: float
    ) -> None:
        if log is None:
            return
        row: dict[str, Any] = {"step": self.progress.step, "epoch": self.progress.step / self.steps_per_epoch}
        row |= {"lr": rate, "grad_norm": norm, "images_per_s": round(speed, 2), "seconds": round(seconds, 2)}
        row |= {name: values[name] for name in ("loss", "ce", "logit", "feature", "silence")}
        log.step(row | {"accuracy": 100 * values["right"], "activity": mean_activity(self.activity)}, self.activity)

    def _evaluate(self, log: Log | None, stop: StopRequest, display: Display, started: float) -> bool:
        """Test and log; False if a stop was requested meanwhile, then the resumed run tests again."""
        progress = self.progress

        def show_progress(scores: Accuracy) -> None:
            # A single process may stop at once; several must all finish, because they wait for each other's counts.
            if stop.requested and self.processes.world == 1:
                raise _StoppedError
            percent = min(100, 100 * scores.images * self.processes.world // len(self.test_images))
            display.update(progress.step, f"testing {percent} %  top-1 {scores.top1:.2f} %")

        batches = self._test_batches(self.test_images, self.processes.rank, self.processes.world)
        model = Evaluated(self.evaluated, self.recipe.preprocess)
        try:
            own = evaluate(model, batches, self.recipe.keep.watched // self.processes.world, show_progress)
        except _StoppedError:
            return False
        scores = Accuracy.merged(self.processes.gather(own))
        scores.energy = energy_of(self.evaluated.config, scores.tally)
        record = {"step": progress.step, "epoch": progress.step / self.steps_per_epoch, **scores.as_dict()}
        record["seconds"] = round(time.monotonic() - started, 2)
        progress.last, progress.evaluation_due = record, False
        better = scores.top1 > progress.best and self.silencer.arrived(progress.step)
        progress.best = scores.top1 if better else progress.best
        if log is not None:
            log.evaluation(record)
            if scores.tally.images:
                save_tally(self.out / ACTIVITY_FILE, scores.tally, self.evaluated.config)
            if better:
                save_network(self.out / BEST_FILE, self.evaluated, self._metadata())
        display.print_line(
            f"step {progress.step}: top-1 {scores.top1:.2f} %, top-5 {scores.top5:.2f} % of {scores.images} images"
        )
        return True

    def _test_batches(self, images: Images, rank: int, world: int) -> TestBatches:
        workers, device = self.recipe.data.workers, self.processes.device
        return TestBatches(images, self.recipe.preprocess, TEST_BATCH, rank, world, workers, device)

    def _note_unreadable(self, parts: tuple[Batch, ...], display: Display) -> None:
        for line in [line for part in parts for line in part.unreadable if line not in self.unreadable]:
            self.unreadable.add(line)
            display.print_line(line)
            with (self.out / UNREADABLE_FILE).open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        if len(self.unreadable) > UNREADABLE_SHARE * len(self.train_images):
            raise LapisError(
                f"{len(self.unreadable)} of {len(self.train_images)} training images cannot be read; "
                f"see {self.out / UNREADABLE_FILE} and repair the data"
            )

    def _metadata(self) -> dict[str, Any]:
        """What a network's file records about its training."""
        known = {
            name: self.progress.last[name]
            for name in ("top1", "top5", "images", "activity")
            if name in self.progress.last
        }
        data = self.recipe.data
        return {
            "state": "trained",
            "recipe": self.recipe.name,
            "dataset": "cifar10" if data.dataset == "sample" else data.dataset,
            "preprocess": self.recipe.preprocess.to_dict(),
            "class_names": list(self.train_images.classes),
            "step": self.progress.step,
            "scores": known,
            **({TRAINED_SLICE: list(self.trained_slice)} if self.trained_slice else {}),
        }

    def _summary(self, stopped: bool) -> dict[str, Any]:
        progress = self.progress
        return {
            "recipe": self.recipe.name,
            "out": str(self.out),
            "interrupted": stopped,
            "step": progress.step,
            "steps": self.total,
            "best_top1": max(progress.best, 0.0),
            "seconds": round(progress.seconds, 2),
            "unreadable": len(self.unreadable),
            **{name: value for name, value in progress.last.items() if name not in ("step", "seconds")},
        }

    def _save(self, seconds: float) -> None:
        self.progress.seconds = seconds
        if not self.processes.first:
            return
        save_state(
            self.out,
            {
                "recipe": self.recipe.to_dict(),
                "progress": dict(vars(self.progress)),
                "objective": self.objective.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "silencer": self.silencer.state(),
                "average": None if self.average is None else self.average.model.state_dict(),
                "generator": torch.get_rng_state(),
            },
        )

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what `_save` wrote, on any number of processes."""
        self.objective.load_state_dict(state["objective"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.silencer.restore(state["silencer"])
        if self.average is not None:
            self.average.model.load_state_dict(state["average"])
            self.average.copy_silence(self.student)
        self.progress = Progress(**state["progress"])
        torch.set_rng_state(state["generator"])


def _note(values: dict[str, float], activity: float, speed: float, best: float) -> str:
    tested = f"  best {best:.2f} %" if best >= 0 else ""
    seen = f"loss {values['loss']:.4f}  batch {100 * values['right']:.1f} %  activity {activity:.2f}"
    return f"{seen}  {speed:.0f} images/s{tested}"

"""The log of a run: steps.csv, evaluations.jsonl, a plot of both, and TensorBoard's files where it is installed."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lapis._util.files import csv_text, parse_json, save_figure, write_atomically
from lapis._util.hints import install_command
from lapis._util.run_layout import CURVES_FILE, EVALUATIONS_FILE, STEPS_FILE
from lapis.errors import LapisError

COLUMNS = (
    "step", "epoch", "lr", "loss", "ce", "logit", "feature", "accuracy", "activity", "grad_norm", "images_per_s",
    "seconds",
)  # fmt: skip


class Log:
    """Appends rows and flushes each; rows after `step` of an earlier, longer attempt are dropped first.

    `seconds` is the training time that is behind a resumed run. Only one of several processes writes.
    """

    def __init__(self, folder: Path, step: int, seconds: float, writes: bool = True) -> None:
        self.folder, self.writes = folder, writes
        self._started = time.monotonic() - seconds
        self._mark, self._marked_step = time.monotonic(), step
        self.speed = 0.0
        if writes:
            rows = [row for row in read_steps(folder) if int(row["step"]) <= step]
            with _damage_of(folder / STEPS_FILE):
                rows = [{name: row[name] for name in COLUMNS} for row in rows]
            lines = [record for record in read_evaluations(folder) if record["step"] <= step]
            write_atomically(folder / STEPS_FILE, csv_text(rows, COLUMNS).encode())
            write_atomically(folder / EVALUATIONS_FILE, "".join(json.dumps(line) + "\n" for line in lines).encode())
        self.board = _board(folder, step) if writes else None

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *error: object) -> None:
        if self.board is not None:
            self.board.close()

    @property
    def seconds(self) -> float:
        """Training time, over all attempts."""
        return time.monotonic() - self._started

    def step(self, row: dict[str, Any], batch: int, activity: dict[str, float]) -> None:
        """One row of a step on `batch` images, and for TensorBoard the activity of each point."""
        now = time.monotonic()
        self.speed = (row["step"] - self._marked_step) * batch / max(1e-9, now - self._mark)
        self._mark, self._marked_step = now, row["step"]
        if not self.writes:
            return
        row = row | {"images_per_s": round(self.speed, 2), "seconds": round(self.seconds, 2)}
        # repr keeps every bit of a float, so that two runs can be compared exactly.
        self._append(STEPS_FILE, ",".join(repr(row[name]) for name in COLUMNS))
        self._show({"train": {name: row[name] for name in COLUMNS[2:]}, "train_activity": activity}, row["step"])

    def note(self, row: dict[str, Any], best: float) -> str:
        """A step that was just logged, for the display."""
        tested = f"  best {best:.2f} %" if best >= 0 else ""
        seen = f"loss {row['loss']:.4f}  batch {row['accuracy']:.1f} %  activity {row['activity']:.2f}"
        return f"{seen}  {self.speed:.0f} images/s{tested}"

    def evaluation(self, record: dict[str, Any]) -> str:
        """Log a test; the same in a line, for the display."""
        self._mark = time.monotonic()  # the time of a test is not that of steps
        if self.writes:
            self._append(EVALUATIONS_FILE, json.dumps(record))
        tests = {name: record[name] for name in ("top1", "top5", "loss")}
        self._show({"test": tests, "activity": record.get("activity", {})}, record["step"])
        tested = f"{record['images']} {record['evaluated']} images"
        return f"step {record['step']}: top-1 {record['top1']:.2f} %, top-5 {record['top5']:.2f} % of {tested}"

    def _show(self, groups: dict[str, dict[str, float]], step: int) -> None:
        """The values of a step on TensorBoard, where it is installed."""
        if self.board is not None:
            for group, values in groups.items():
                for name, value in values.items():
                    self.board.add_scalar(f"{group}/{name}", value, step)

    def _append(self, name: str, line: str) -> None:
        try:
            with (self.folder / name).open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            raise LapisError(
                f"cannot write {self.folder / name}: {error.strerror}; free space, then --resume"
            ) from error


def read_steps(folder: Path) -> list[dict[str, str]]:
    """The rows of steps.csv; a line that a killed process left incomplete is skipped."""
    path = folder / STEPS_FILE
    with _damage_of(path):
        rows = [row for row in csv.DictReader(_lines(path)) if None not in row and None not in row.values()]
        for row in rows:
            _ = int(row["step"]), [float(value) for value in row.values()]
        return rows


def read_evaluations(folder: Path) -> list[dict[str, Any]]:
    path = folder / EVALUATIONS_FILE
    with _damage_of(path):
        records = [parse_json(line, "a line") for line in _lines(path)]
        _ = [(record["step"] + 0, record.get("top1", 0) + 0, dict(record.get("activity", {}))) for record in records]
        return records


def _lines(path: Path) -> list[str]:
    """The complete lines of a log; none where there is no log yet."""
    return path.read_text(encoding="utf-8").split("\n")[:-1] if path.is_file() else []


@contextmanager
def _damage_of(path: Path) -> Iterator[None]:
    """Every way in which a log can be damaged, as one error that names it."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise LapisError(f"{path} is damaged ({error}); remove it, and the run goes on without its past") from error


def _board(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:  # optional; the CSV and JSON files hold the same values
        return None
    return SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)


def plot_curves(folder: Path, title: str) -> None:
    """Draw loss, test accuracy and activity over the steps, from the run's log."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise LapisError(f"curves need matplotlib: {install_command('train')} ({error})") from error
    steps, evaluations = read_steps(folder), read_evaluations(folder)
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    loss, accuracy, activity = figure.subplots(1, 3)
    numbers = [int(row["step"]) for row in steps]
    loss.plot(numbers, [float(row["loss"]) for row in steps], linewidth=1, label="loss")
    for part in ("ce", "logit", "feature"):
        values = [float(row[part]) for row in steps]
        if any(values):
            loss.plot(numbers, values, linewidth=0.7, alpha=0.7, label=part)
    accuracy.plot([row["step"] for row in evaluations], [row["top1"] for row in evaluations], marker="o", markersize=3)
    activity.plot(numbers, [float(row["activity"]) for row in steps], linewidth=1, label="mean, training")
    for point in evaluations[-1].get("activity", {}) if evaluations else {}:
        shares = {row["step"]: row["activity"][point] for row in evaluations if point in row.get("activity", {})}
        activity.plot(list(shares), list(shares.values()), marker="o", markersize=3, label=point)
    activity.set_ylim(0, 1)
    names = {loss: "training loss", accuracy: "top-1 (%)", activity: "share of values that spike"}
    for axes, name in names.items():
        axes.set(xlabel="step", title=name)
        if axes is not accuracy:
            axes.legend(frameon=False, fontsize=7)
    figure.suptitle(title)
    save_figure(folder / CURVES_FILE, figure)

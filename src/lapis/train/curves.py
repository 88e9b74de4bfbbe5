"""A plot of a run's loss, accuracy and activity."""

from __future__ import annotations

from pathlib import Path

from lapis._util.files import save_figure
from lapis._util.hints import install_command
from lapis._util.run_layout import CURVES_FILE
from lapis.errors import LapisError
from lapis.train.log import read_evaluations, read_steps


def plot_curves(folder: Path, title: str) -> Path:
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
    loss.set_xlabel("step")
    loss.set_title("training loss")
    loss.legend(frameon=False, fontsize=8)
    accuracy.plot([row["step"] for row in evaluations], [row["top1"] for row in evaluations], marker="o", markersize=3)
    accuracy.set_xlabel("step")
    accuracy.set_title("test top-1 (%)")
    activity.plot(numbers, [float(row["activity"]) for row in steps], linewidth=1, label="mean, training")
    for point in evaluations[-1].get("activity", {}) if evaluations else {}:
        shares = {row["step"]: row["activity"][point] for row in evaluations if point in row.get("activity", {})}
        activity.plot(list(shares), list(shares.values()), marker="o", markersize=3, label=point)
    activity.set_ylim(0, 1)
    activity.set_xlabel("step")
    activity.set_title("share of values that spike")
    activity.legend(frameon=False, fontsize=7)
    figure.suptitle(title)
    path = folder / CURVES_FILE
    save_figure(path, figure)
    return path

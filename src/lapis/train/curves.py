"""A plot of a run's loss and accuracy."""

from __future__ import annotations

from pathlib import Path

from lapis.errors import LapisError
from lapis.files import save_figure
from lapis.runs import CURVES_FILE
from lapis.train.log import read_evaluations, read_steps


def plot_curves(folder: Path, title: str) -> Path:
    """Draw loss and test accuracy over the steps, from the run's log."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise LapisError(f"curves need matplotlib: pip install 'lapis-snn[train]' ({error})") from error
    steps, evaluations = read_steps(folder), read_evaluations(folder)
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    loss, accuracy = figure.subplots(1, 2)
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
    figure.suptitle(title)
    path = folder / CURVES_FILE
    save_figure(path, figure)
    return path

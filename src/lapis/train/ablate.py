"""Ablations: train variants of one recipe with the same schedule and seeds, and compare them in a table and a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lapis.files import csv_text, save_figure, write_text
from lapis.trace import POINTS
from lapis.train.continued import train_or_continue
from lapis.train.distributed import Processes
from lapis.train.sparsity import mean_activity
from lapis.train.studies import Study, Variant

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ENERGY_LABEL = "energy per image, mJ (the paper's convention)"
CSV_FILE, PLOT_FILE = "ablation.csv", "ablation.png"
COLUMNS = ("variant", "seed", "top1", "top5", "images", "energy_mj", "activity", *POINTS, "steps", "seconds")


def run_study(
    rows: list[Variant], seeds: Sequence[int], data: Path | None, out: Path, processes: Processes, quiet: bool = False
) -> list[dict[str, Any]] | None:
    """Train every variant with every seed, one after the other; None if a run was stopped.

    Finished runs are not repeated and interrupted ones are resumed, so the same command continues a study.
    """
    records: list[dict[str, Any]] = []
    for seed in seeds:
        for row in rows:
            folder = _folder(out, row.name, seed)
            recipe = replace(row.recipe, seed=seed)
            if row.after is not None:
                recipe = replace(recipe, start=str(_folder(out, row.after, seed)))
            summary = train_or_continue(recipe, data, folder, processes, quiet)
            if summary["interrupted"]:
                return None
            records.append(_record(row.name, seed, summary))
    return records


def write_study(study: Study, title: str, records: list[dict[str, Any]], out: Path) -> list[Path]:
    """The CSV and, with matplotlib, the plot of a study."""
    write_text(out / CSV_FILE, csv_text(records, COLUMNS))
    _plot(study, title, records, out / PLOT_FILE)
    return [out / CSV_FILE, out / PLOT_FILE]


def table(study: Study, records: list[dict[str, Any]]) -> str:
    """Mean and range over seeds, one row per variant, with the paper's figure where there is one."""
    head = ("variant", "top-1 %", "range", "activity", "energy mJ", "seeds", "paper %")
    layout = "{:<12} {:>8} {:>15} {:>8} {:>10} {:>5} {:>8}"
    lines = [layout.format(*head)]
    for name, runs in _by_variant(records).items():
        tops = [record["top1"] for record in runs]
        spread = f"{min(tops):.2f}..{max(tops):.2f}"
        paper = study.paper.get(name)
        figures = (_mean_of(runs, "activity", 3), _mean_of(runs, "energy_mj", 4), len(runs))
        lines.append(
            layout.format(name, f"{_mean(tops):.2f}", spread, *figures, "-" if paper is None else f"{paper:.2f}")
        )
    return "\n".join(lines)


def _by_variant(records: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    names = dict.fromkeys(record["variant"] for record in records)
    return {name: [record for record in records if record["variant"] == name] for name in names}


def _mean_of(runs: list[dict[str, Any]], column: str, digits: int) -> str:
    """The mean of a column over the runs that have it."""
    values = [run[column] for run in runs if run[column] != ""]
    return f"{_mean(values):.{digits}f}" if values else "-"


def _folder(out: Path, variant: str, seed: int) -> Path:
    return out / f"{variant.replace(' ', '_')}-seed{seed}"


def _record(name: str, seed: int, summary: dict[str, Any]) -> dict[str, Any]:
    activity, energy = summary.get("activity", {}), summary.get("energy") or {}
    return {
        "variant": name,
        "seed": seed,
        "energy_mj": energy.get("energy_mj", ""),
        "activity": mean_activity(activity) if activity else "",
        **{key: summary[key] for key in ("top1", "top5", "images", "steps", "seconds")},
        **{point: activity.get(point, "") for point in POINTS},
    }


def _plot(study: Study, title: str, records: list[dict[str, Any]], path: Path) -> None:
    """Accuracy of each variant, or against activity and energy where variants differ in those."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    by_spikes = study.drawn == "spikes"
    figure = Figure(figsize=(9.6 if by_spikes else 5.2, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    if by_spikes:
        against_activity, against_energy = figure.subplots(1, 2, sharey=True)
        _scatter(against_activity, records, "activity", "mean share of neurons that fire")
        _scatter(against_energy, records, "energy_mj", ENERGY_LABEL)
        against_activity.set_ylabel("test top-1 (%)")
    else:
        axes = figure.subplots()
        if study.drawn == "variants":
            _bars(axes, records)
        else:
            _scatter(axes, records, "energy_mj", ENERGY_LABEL)
        axes.set_ylabel("test top-1 (%)")
    figure.suptitle(title, fontsize=10)
    save_figure(path, figure)


def _bars(axes: Axes, records: list[dict[str, Any]]) -> None:
    groups = _by_variant(records)
    for index, runs in enumerate(groups.values()):
        tops = [record["top1"] for record in runs]
        axes.bar(index, _mean(tops), width=0.6, color="#26619c")
        axes.plot([index] * len(tops), tops, "o", color="black", markersize=3)
    axes.set_xticks(range(len(groups)), list(groups))


def _scatter(axes: Axes, records: list[dict[str, Any]], column: str, label: str) -> None:
    for name, runs in _by_variant(records).items():
        axes.plot([record[column] for record in runs], [record["top1"] for record in runs], "o", label=name)
    axes.set_xlabel(label)
    axes.legend(frameon=False, fontsize=8)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)

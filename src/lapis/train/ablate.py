"""Ablations: train variants of one recipe with the same schedule and seeds, and compare them in a table and a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from lapis._util.files import csv_text, save_figure, write_text
from lapis._util.run_layout import ACTIVITY_FILE, LAST_FILE, SUMMARY_FILE
from lapis.energy import CONVENTIONS, load_tally, side_by_side
from lapis.energy.estimate import rate_train_mj
from lapis.nn.checkpoint import read_tensors
from lapis.relations import rule_of
from lapis.trace import POINTS
from lapis.train.continued import finished_summary, train_or_continue
from lapis.train.distributed import Processes
from lapis.train.log import read_steps
from lapis.train.recipe import Recipe
from lapis.train.sparsity import mean_activity
from lapis.train.studies import Study, Variant

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ENERGY_LABEL = "energy per image, mJ (the paper's convention)"
# The room of a variant's name in the plot, in pixels.
NAME_WIDTH, NAME_HEIGHT = 70, 11
CSV_FILE, PLOT_FILE = "ablation.csv", "ablation.png"
# Every convention has its column; energy_mj, the paper's, is the first of them.
ENERGIES = {name: "energy_mj" if name == "paper" else f"energy_{name}_mj" for name in CONVENTIONS}
# The same network if each code were sent as a rate train, which is how most of the compared systems send it.
RATE_TRAIN = "energy_rate_train_mj"
COLUMNS = (
    "variant", "seed", "top1", "top5", "images", *ENERGIES.values(), RATE_TRAIN, "multiplication_free", "origin",
    "log2_gains",
    "activity", *POINTS, "steps", "seconds", "ms_per_step",
)  # fmt: skip


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
            summary = train_or_continue(_recipe(row, seed, out), data, folder, processes, quiet)
            if summary["interrupted"]:
                return None
            if processes.first:
                records.append(_record(row, seed, summary, folder))
    return records


def finished_runs(rows: list[Variant], seeds: Sequence[int], out: Path) -> list[dict[str, Any]]:
    """The runs of a study that are finished; nothing is trained."""
    runs = [(row, seed, _folder(out, row.name, seed)) for seed in seeds for row in rows]
    return [
        _record(row, seed, finished_summary(folder, _recipe(row, seed, out)), folder)
        for row, seed, folder in runs
        if (folder / SUMMARY_FILE).is_file()
    ]


def write_study(study: Study, title: str, records: list[dict[str, Any]], out: Path) -> list[Path]:
    """The CSV and, with matplotlib, the plot of a study."""
    write_text(out / CSV_FILE, csv_text(records, COLUMNS))
    _plot(study, title, records, out / PLOT_FILE)
    return [out / CSV_FILE, out / PLOT_FILE]


def table(study: Study, records: list[dict[str, Any]]) -> str:
    """Mean and range over seeds, one row per variant, with the paper's figure where there is one.

    Energies are in mJ, one column per convention, and one for codes that are sent as rate trains; `free` is whether q
    and k are compared without multiplications.
    """
    head = ("variant", "top-1 %", "range", "activity", *ENERGIES, "rate", "free", "ms/step", "seeds", "paper %")
    layout = "{:<20} {:>7} {:>13} {:>8}" + " {:>8}" * (len(ENERGIES) + 1) + " {:>4} {:>7} {:>5} {:>7}"
    lines = [layout.format(*head)]
    for name, runs in _by_variant(records).items():
        tops = [record["top1"] for record in runs]
        paper = study.paper.get(name)
        lines.append(
            layout.format(
                name,
                f"{_mean(tops):.2f}",
                f"{min(tops):.2f}..{max(tops):.2f}",
                _mean_of(runs, "activity", 3),
                *(_mean_of(runs, column, 4) for column in (*ENERGIES.values(), RATE_TRAIN)),
                "yes" if runs[0]["multiplication_free"] else "no",
                _mean_of(runs, "ms_per_step", 0),
                len(runs),
                "-" if paper is None else f"{paper:.2f}",
            )
        )
    return "\n".join(lines)


def _by_variant(records: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    names = dict.fromkeys(record["variant"] for record in records)
    return {name: [record for record in records if record["variant"] == name] for name in names}


def _mean_of(runs: list[dict[str, Any]], column: str, digits: int) -> str:
    """The mean of a column over the runs that have it."""
    values = [run[column] for run in runs if run[column] != ""]
    return f"{_mean(values):.{digits}f}" if values else "-"


def _recipe(row: Variant, seed: int, out: Path) -> Recipe:
    recipe = replace(row.recipe, seed=seed)
    return recipe if row.after is None else replace(recipe, start=str(_folder(out, row.after, seed)))


def _folder(out: Path, variant: str, seed: int) -> Path:
    return out / f"{variant.replace(' ', '_')}-seed{seed}"


def _record(row: Variant, seed: int, summary: dict[str, Any], folder: Path) -> dict[str, Any]:
    activity, rule = summary.get("activity", {}), rule_of(row.recipe.model.relation)
    return {
        "variant": row.name,
        "seed": seed,
        **_energies(folder),
        "multiplication_free": rule.multiplication_free,
        "origin": rule.origin,
        "log2_gains": _gains(folder),
        "activity": mean_activity(activity) if activity else "",
        **{key: summary[key] for key in ("top1", "top5", "images", "steps", "seconds")},
        **{point: activity.get(point, "") for point in POINTS},
        "ms_per_step": _ms_per_step(folder, row.recipe.optim.batch),
    }


def _energies(folder: Path) -> dict[str, Any]:
    """Millijoules per image under every convention, at the activities of the last test."""
    unknown = dict.fromkeys((*ENERGIES.values(), RATE_TRAIN), "")
    if not (folder / ACTIVITY_FILE).is_file():
        return unknown
    tally, config = load_tally(folder / ACTIVITY_FILE)
    if config is None or not config.quantize:
        return unknown
    rate_train = rate_train_mj(config, tally)
    found = {ENERGIES[one.convention.name]: one.energy_mj for one in side_by_side(config, tally)}
    return found | {RATE_TRAIN: "" if rate_train is None else rate_train}


def _gains(folder: Path) -> str:
    """The least and the largest log2 of the gains g_h, for rules that have them."""
    tensors = read_tensors(folder / LAST_FILE)[0]
    gains = [float(gain) for name, heads in tensors.items() if name.endswith("log2_gain") for gain in heads]
    return f"{min(gains):.0f}..{max(gains):.0f}" if gains else ""


def _ms_per_step(folder: Path, batch: int) -> float | str:
    """The median over the log's lines, so that tests and a busy machine count little."""
    speeds = [float(line["images_per_s"]) for line in read_steps(folder)]
    return round(1000 * batch / median(speeds), 1) if speeds and median(speeds) > 0 else ""


def _plot(study: Study, title: str, records: list[dict[str, Any]], path: Path) -> None:
    """Accuracy of each variant against energy, and against activity where variants differ in that."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    by_spikes = study.drawn == "spikes"
    figure = Figure(figsize=(9.6 if by_spikes else 7.2, 3.6 if by_spikes else 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    if by_spikes:
        against_activity, against_energy = figure.subplots(1, 2, sharey=True)
        _scatter(against_activity, records, "activity", "mean share of neurons that fire")
        _scatter(against_energy, records, "energy_mj", ENERGY_LABEL)
        against_activity.set_ylabel("test top-1 (%)")
    else:
        axes = figure.subplots()
        _scatter(axes, records, "energy_mj", ENERGY_LABEL)
        axes.set_ylabel("test top-1 (%)")
    figure.suptitle(title, fontsize=10)
    save_figure(path, figure)


def _scatter(axes: Axes, records: list[dict[str, Any]], column: str, label: str) -> None:
    """One point per run, open where queries and keys are multiplied, with the variant's name at the mean."""
    names: list[tuple[float, float, str, str]] = []
    for index, (name, runs) in enumerate(_by_variant(records).items()):
        known = [record for record in runs if record[column] != ""]
        if not known:
            continue
        colour, free = f"C{index % 10}", known[0]["multiplication_free"]
        across, up = [record[column] for record in known], [record["top1"] for record in known]
        axes.plot(across, up, "o", color=colour, markerfacecolor=colour if free else "none")
        names.append((_mean(across), _mean(up), name, colour))
    axes.set_xlabel(f"{label}; open: q and k multiplied")
    axes.margins(x=0.12)
    _write_names(axes, names)


def _write_names(axes: Axes, names: list[tuple[float, float, str, str]]) -> None:
    """Each name (x, y, name, colour) beside its point, below those that it would cover."""
    axes.autoscale_view()  # else the places of points in pixels are not known before the figure is drawn
    taken: list[tuple[float, float]] = []
    for x, y, name, colour in sorted(names, key=lambda each: -each[1]):
        left, point = axes.transData.transform((x, y))
        height = point
        while any(abs(left - other) < NAME_WIDTH and abs(height - at) < NAME_HEIGHT for other, at in taken):
            height -= 1
        taken.append((left, height))
        down = (point - height) * 72 / axes.figure.dpi
        axes.annotate(name, (x, y), (5, 3 - down), textcoords="offset points", fontsize=7, color=colour)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)

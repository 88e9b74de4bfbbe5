"""Ablations: train variants of one recipe with the same schedule and seeds, and compare them in a table and a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from lapis import relations
from lapis.config import ActivationModes, Mode, nearest
from lapis.errors import LapisError
from lapis.files import csv_text, save_figure, write_text
from lapis.train import recipes
from lapis.train.continued import train_or_continue
from lapis.train.distributed import Processes
from lapis.train.recipe import Recipe

Study = Literal["relation", "deployment", "activation", "sparsity"]
STUDIES: tuple[Study, ...] = get_args(Study)

CSV_FILE, PLOT_FILE = "ablation.csv", "ablation.png"
POINT_COLUMNS = ("attention_in", "q", "k", "v", "readout", "mlp_in", "mlp_hidden")
COLUMNS = ("variant", "seed", "top1", "top5", "images", "energy_mj", *POINT_COLUMNS, "steps", "seconds")

# Accuracies that the paper prints for its own networks (CIFAR-10 for relations, ImageNet for deployment).
PAPER: dict[str, dict[str, float]] = {
    "relation": {"dot": 97.09, "gaussian": 91.44, "hamming": 87.92, "laplacian": 96.56},
    "deployment": {"exact W32": 83.70, "pow2 W32": 83.39, "pow2 W6": 83.25},
    "activation": {},
    "sparsity": {},
}

# The recipe that a study varies unless another is named.
DEFAULT_RECIPES: dict[str, str] = {"sparsity": "cifar10_tiny_sparse"}
DEFAULT_RECIPE = "cifar10_tiny"

# Goals for the activity, each rung starting from the one before and named by its mean over the four signed points in
# front of a layer. Without training, v and the readout can lose the most spikes and the input of the MLP the fewest.
# The last rung is what the paper's own energies imply.
_RUNGS = {
    "0.57": (0.58, 0.50, 0.50, 0.70, 0.70, 1.00),
    "0.50": (0.52, 0.42, 0.42, 0.62, 0.60, 1.00),
    "0.44": (0.47, 0.36, 0.36, 0.57, 0.60, 0.11),
    "0.39": (0.42, 0.31, 0.31, 0.52, 0.60, 0.10),
    "0.34": (0.37, 0.27, 0.27, 0.46, 0.60, 0.10),
    "paper": (0.31, 0.31, 0.31, 0.21, 0.60, 0.10),
}
LADDER: dict[str, dict[str, Any]] = {
    name: dict(zip(("attention_in", "v", "readout", "mlp_in", "qk", "mlp_hidden"), goals, strict=True))
    for name, goals in _RUNGS.items()
}


@dataclass(frozen=True)
class Variant:
    """One row: a recipe, and the variant whose trained network it starts from, if any."""

    name: str
    recipe: Recipe
    after: str | None = None


def variants(study: str, base: str, settings: Sequence[str]) -> list[Variant]:
    """The variants of the recipe `base` in a study; `settings` apply to every one of them."""
    if study not in STUDIES:
        raise LapisError(f"unknown ablation {study!r}; {nearest(study, STUDIES)}use {', '.join(STUDIES)}")
    if study == "deployment":
        exact, pow2, w6 = (_stage(f"{base}{suffix}", settings) for suffix in ("", "_pow2", "_w6"))
        # As in the paper, both recoveries start from the network with exact rows.
        return [
            Variant("exact W32", exact),
            Variant("pow2 W32", pow2, "exact W32"),
            Variant("pow2 W6", w6, "exact W32"),
        ]
    recipe = _stage(base, settings)
    if study == "sparsity":
        names = list(LADDER)
        return [
            Variant(name, replace(recipe, sparsity=replace(recipe.sparsity, **LADDER[name])), after)
            for name, after in zip(names, [None, *names[:-1]], strict=True)
        ]
    if study == "relation":
        return [
            Variant(relation, replace(recipe, model=recipe.model.replace(relation=relation)))
            for relation in relations.names()
        ]
    modes = {mode: recipe.model.replace(modes=ActivationModes.all(mode)) for mode in get_args(Mode)}
    lifted = replace(recipe, model=modes["unsigned"], lift=True)
    return [*(Variant(mode, replace(recipe, model=model)) for mode, model in modes.items()), Variant("lifted", lifted)]


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


def write_study(study: str, title: str, records: list[dict[str, Any]], out: Path) -> list[Path]:
    """The CSV and, with matplotlib, the plot of a study."""
    write_text(out / CSV_FILE, csv_text(records, COLUMNS))
    _plot(study, title, records, out / PLOT_FILE)
    return [out / CSV_FILE, out / PLOT_FILE]


def table(study: str, records: list[dict[str, Any]]) -> str:
    """Mean and range over seeds, one row per variant, with the paper's figure where there is one."""
    names = list(dict.fromkeys(record["variant"] for record in records))
    lines = [f"{'variant':<12} {'top-1 %':>8} {'range':>15} {'energy mJ':>10} {'seeds':>5} {'paper %':>8}"]
    for name in names:
        runs = [record for record in records if record["variant"] == name]
        tops = [record["top1"] for record in runs]
        energies = [record["energy_mj"] for record in runs if record["energy_mj"] != ""]
        energy = f"{sum(energies) / len(energies):.4f}" if energies else "-"
        paper = PAPER[study].get(name)
        printed = "-" if paper is None else f"{paper:.2f}"
        spread = f"{min(tops):.2f}..{max(tops):.2f}"
        lines.append(f"{name:<12} {_mean(tops):>8.2f} {spread:>15} {energy:>10} {len(runs):>5} {printed:>8}")
    return "\n".join(lines)


def _stage(name: str, settings: Sequence[str]) -> Recipe:
    return recipes.load(name).with_overrides(list(settings))


def _folder(out: Path, variant: str, seed: int) -> Path:
    return out / f"{variant.replace(' ', '_')}-seed{seed}"


def _record(name: str, seed: int, summary: dict[str, Any]) -> dict[str, Any]:
    activity, energy = summary.get("activity", {}), summary.get("energy") or {}
    return {
        "variant": name,
        "seed": seed,
        "energy_mj": energy.get("energy_mj", ""),
        **{key: summary[key] for key in ("top1", "top5", "images", "steps", "seconds")},
        **{point: activity.get(point, "") for point in POINT_COLUMNS},
    }


def _plot(study: str, title: str, records: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    names = list(dict.fromkeys(record["variant"] for record in records))
    for index, name in enumerate(names):
        runs = [record for record in records if record["variant"] == name]
        tops = [record["top1"] for record in runs]
        if study == "relation":
            axes.bar(index, _mean(tops), width=0.6, color="#26619c")
            axes.plot([index] * len(tops), tops, "o", color="black", markersize=3)
        else:
            axes.plot([record["energy_mj"] for record in runs], tops, "o", label=name)
    if study == "relation":
        axes.set_xticks(range(len(names)), names)
    else:
        axes.set_xlabel("energy per image, mJ (the paper's convention)")
        axes.legend(frameon=False)
    axes.set_ylabel("test top-1 (%)")
    axes.set_title(title)
    save_figure(path, figure)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)

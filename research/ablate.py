"""Train variants of one recipe under the same schedule and seeds, and compare them.

    python research/ablate.py relation --data DIR --only laplacian,dot --seeds 0,1,2 --set optim.epochs=1

relation: every registered relation, with mean pooling (some rules give a class token nothing to read; install `zoo/`
for those of other systems). control: l1 distance and dot product as both are deployed, all else equal. deployment:
exact rows, then both recoveries. activation: signed, offset and unsigned spikes. sparsity: a ladder of goals for the
activity, each rung starting from the one before. silence: signed and unsigned spikes, other axes, and ReLU, all at a
goal of one half. The same command continues a study that was stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

from lapis import relations
from lapis._util.files import csv_text, write_text
from lapis.config import Coding, CodingByPoint
from lapis.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, EXIT_OK, LapisError
from lapis.train import load_recipe
from lapis.train.distributed import join
from lapis.train.loop import train_or_resume

# The layers whose inputs have a goal. Queries and keys have none: the relation compares them whether they fire or not.
DRIVING = ("attention_in", "v", "readout", "mlp_in")
# Accuracies that the paper prints for its own networks (CIFAR-10 for relations, ImageNet for deployment).
PAPER = {
    "dot": 97.09, "gaussian": 91.44, "hamming": 87.92, "laplacian": 96.56,
    "exact W32": 83.70, "pow2 W32": 83.39, "pow2 W6": 83.25,
}  # fmt: skip


@dataclass(frozen=True)
class Variant:
    """One row: settings on top of the recipe (or of its stage), and the variant whose network it starts from."""

    name: str
    settings: tuple[str, ...] = ()
    stage: str = ""
    after: str | None = None


def _coding(mode: str) -> tuple[str, ...]:
    return tuple(f"model.coding.{field.name}={mode}" for field in fields(CodingByPoint))


def _goals(**shares: float) -> tuple[str, ...]:
    return tuple(f"sparsity.{point}={share}" for point, share in shares.items())


# Power-of-two rows, a readout of spikes and six-bit weights; signed codes, whose dot products are those of the values.
DEPLOYED = ("model.row_scale=pow2", "model.readout=spikes", "model.weight_bits=6", *_coding("signed"))
HALF = _goals(**dict.fromkeys(DRIVING, 0.5))
# The recipe that a study varies, where it is not cifar10_tiny.
DEFAULTS = {"deployment": "imagenet_base", "sparsity": "cifar10_tiny_half"}
# The last rung is what the paper's own energies imply.
LADDER = {
    **{f"{goal:.2f}": dict.fromkeys(DRIVING, goal) for goal in (0.65, 0.55, 0.48, 0.40, 0.35)},
    "paper": {**dict.fromkeys(DRIVING, 0.31), "mlp_in": 0.21, "mlp_hidden": 0.10},
}


def variants(study: str) -> list[Variant]:
    """The rows of a study."""
    rungs = list(LADDER)
    return {
        "relation": [Variant(name, (f"model.relation={name}", "model.mean_pool=true")) for name in relations.names()],
        "control": [Variant(name, (f"model.relation={name}", *DEPLOYED)) for name in ("laplacian", "dot")],
        "deployment": [
            Variant("exact W32"),
            Variant("pow2 W32", stage="_pow2", after="exact W32"),
            Variant("pow2 W6", stage="_w6", after="exact W32"),
        ],
        "activation": [Variant(mode, _coding(mode)) for mode in get_args(Coding)],
        "sparsity": [
            Variant(rung, _goals(**LADDER[rung]), after=before)
            for rung, before in zip(rungs, [None, *rungs[:-1]], strict=True)
        ],
        "silence": [
            Variant("signed", HALF),
            Variant("unsigned", (*HALF, *_coding("unsigned"))),
            Variant("relu", (*HALF, "model.activation=relu")),
        ],
    }[study]


def run_study(
    rows: Sequence[Variant], recipe: str, settings: Sequence[str], seeds: Sequence[int], data: Path | None, out: Path,
    device: str = "cpu",
) -> list[dict[str, Any]] | None:  # fmt: skip
    """Train every variant with every seed; None if a run was stopped. Finished runs are not repeated."""
    records: list[dict[str, Any]] = []
    with join(device) as processes:
        for seed in seeds:
            for row in rows:
                changes = [*settings, *row.settings, f"seed={seed}"]
                changes += [f"start={_folder(out, row.after, seed)}"] if row.after else []
                made = load_recipe(recipe + row.stage).with_overrides(changes)
                summary = train_or_resume(made, data, _folder(out, row.name, seed), processes)
                if summary["interrupted"]:
                    return None
                records.append(_record(row.name, seed, summary))
    return records


def _folder(out: Path, variant: str, seed: int) -> Path:
    return out / f"{variant.replace(' ', '_')}-seed{seed}"


def _record(variant: str, seed: int, summary: dict[str, Any]) -> dict[str, Any]:
    activity = summary.get("activity", {})
    return {
        "variant": variant,
        "seed": seed,
        **{key: summary[key] for key in ("top1", "top5", "images", "steps", "seconds")},
        "energy_mj": summary.get("energy", {}).get("energy_mj", ""),
        **activity,
    }


def table(records: list[dict[str, Any]]) -> list[str]:
    """Mean and range of top-1 over seeds, one line per variant, with the paper's figure where there is one."""
    lines = [f"{'variant':<20} {'top-1 %':>7} {'range':>13} {'mJ':>8} {'seeds':>5} {'paper %':>7}"]
    for name in dict.fromkeys(record["variant"] for record in records):
        runs = [record for record in records if record["variant"] == name]
        tops = [run["top1"] for run in runs]
        energies = [run["energy_mj"] for run in runs if run["energy_mj"] != ""]
        energy = f"{sum(energies) / len(energies):.4f}" if energies else "-"
        paper = f"{PAPER[name]:.2f}" if name in PAPER else "-"
        spread = f"{min(tops):.2f}..{max(tops):.2f}"
        lines.append(
            f"{name:<20} {sum(tops) / len(tops):>7.2f} {spread:>13} {energy:>8} {len(runs):>5} {paper:>7}"
        )  # fmt: skip
    return lines


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=["relation", "control", "deployment", "activation", "sparsity", "silence"])
    parser.add_argument("--recipe", help="the recipe to vary; cifar10_tiny by default")
    parser.add_argument("--data", type=Path, help="folder of the dataset")
    parser.add_argument("--out", type=Path, help="folder of the study; runs/ablate_STUDY by default")
    parser.add_argument("--start", help="first weights of every variant")
    parser.add_argument("--teacher", help="teacher of every variant; empty: no distillation")
    parser.add_argument("--seeds", default="0", help="seeds, separated by commas")
    parser.add_argument("--only", help="variants to train, separated by commas; all by default")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args(words)
    try:
        rows = variants(asked.study)
        names = [row.name for row in rows] if asked.only is None else [name.strip() for name in asked.only.split(",")]
        unknown = set(names) - {row.name for row in rows}
        if unknown:
            raise LapisError(f"unknown variants {sorted(unknown)}; use {', '.join(row.name for row in rows)}")
        changes = [f"start={asked.start}"] if asked.start is not None else []
        changes += [f"distill.teacher={asked.teacher}"] if asked.teacher is not None else []
        recipe = asked.recipe or DEFAULTS.get(asked.study, "cifar10_tiny")
        out = asked.out or Path("runs") / f"ablate_{asked.study}"
        records = run_study(
            [row for row in rows if row.name in names], recipe, [*changes, *asked.settings],
            [int(seed) for seed in asked.seeds.split(",")], asked.data, out, asked.device,
        )  # fmt: skip
    except LapisError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    if records is None:
        print(f"stopped; the same command continues {out}", file=sys.stderr)
        return EXIT_INTERRUPTED
    columns = list(dict.fromkeys(key for record in records for key in record))
    write_text(out / "ablation.csv", csv_text(records, columns))
    print(*table(records), f"wrote {out / 'ablation.csv'}", sep="\n")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())

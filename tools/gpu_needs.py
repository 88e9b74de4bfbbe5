"""Write what is calculated about GPUs: three tables of docs/gpu.md, and the `Needs:` lines of the recipes of ImageNet.

`python tools/gpu_needs.py` rewrites them; `tests/bench/test_needs.py` fails where one is stale.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from lapis.bench.activations import Saved, calculated, counted
from lapis.bench.needs import needs
from lapis.bench.roofline import GPUS, roofline
from lapis.config import preset
from lapis.train import recipes

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "gpu.md"
RECIPES = ROOT / "src" / "lapis" / "train" / "recipes"
MODELS = ("lapis_tiny", "lapis_small", "lapis_base", "lapis_large")
NEEDS = re.compile(r"^Needs:.*$", re.MULTILINE)


def roofline_table() -> str:
    """One row per pass of attention, one column per GPU, in microseconds."""
    rows = roofline()
    works = dict.fromkeys(row.work for row in rows)
    times = {(row.work, row.gpu): row for row in rows}
    lines = [
        [work, *(f"{times[work, gpu.name].microseconds:,.0f} ({times[work, gpu.name].bound_by})" for gpu in GPUS)]
        for work in works
    ]
    return table(["one layer, µs (bound by)", *(gpu.name for gpu in GPUS)], lines)


def memory_table(count: Callable[..., Saved] = counted) -> str:
    """MB of activations per image in bf16, calculated and counted."""
    lines = []
    for name in MODELS:
        config = preset(name)
        cells = [name]
        for again in (False, True):
            sums, found = calculated(config, "bf16", again), count(config, "bf16", again)
            cells += [f"{sums.per_image / 1e6:,.1f}", f"{found.per_image / 1e6:,.1f}"]
        lines.append(cells)
    return table(["model", "MB per image, calculated", "counted", "with `recompute`, calculated", "counted"], lines)


def needs_table() -> str:
    """GB and hours of the recipes of ImageNet."""
    lines = []
    for name in imagenet_recipes():
        found = {row.gpu: row for row in needs(recipes.load(name), recipes.processes(name))}
        first = found[GPUS[0].name]
        memory = f"{first.gb:.1f} ({first.recompute_gb:.1f})"
        hours = [f"{found[gpu.name].hours:,.1f} ({found[gpu.name].recompute_hours:,.1f})" for gpu in GPUS]
        lines.append([f"`{name}`", str(first.gpus), memory, *hours])
    return table(["recipe", "GPUs", "GB per GPU", *(f"hours, {gpu.name}" for gpu in GPUS)], lines)


def needs_line(name: str) -> str:
    """What a recipe's file says that it needs."""
    one, two = needs(recipes.load(name), recipes.processes(name))[:2]
    memory = f"{one.gb:.0f} GB on each of {one.gpus} GPU{'s' * (one.gpus > 1)}"
    hours = " or ".join(f"{row.hours:.0f} hours on {row.gpu}" for row in (one, two))
    return f"Needs:     {memory} ({one.recompute_gb:.0f} with optim.recompute=true), {hours}; all calculated."


def imagenet_recipes() -> list[str]:
    return [name for name in recipes.names() if name.startswith("imagenet")]


def table(head: list[str], lines: list[list[str]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


TABLES: dict[str, Callable[..., str]] = {"roofline": roofline_table, "activations": memory_table, "needs": needs_table}


def shown(name: str) -> str:
    """The table that the page has now."""
    return PAGE.read_text().partition(f"<!-- {name} -->\n")[2].partition(f"<!-- /{name} -->")[0]


def main() -> None:
    text = PAGE.read_text()
    for name, make in TABLES.items():
        before, _, rest = text.partition(f"<!-- {name} -->\n")
        after = rest.partition(f"<!-- /{name} -->")[2]
        text = f"{before}<!-- {name} -->\n{make()}<!-- /{name} -->{after}"
    PAGE.write_text(text)
    for name in imagenet_recipes():
        file = RECIPES / f"{name}.py"
        file.write_text(NEEDS.sub(needs_line(name), file.read_text()))


if __name__ == "__main__":
    main()

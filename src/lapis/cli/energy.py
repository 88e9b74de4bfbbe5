"""`lapis energy`: the energy per image, operator by operator, beside that of its rivals."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.console import Console

from lapis import energy, models
from lapis._util import overrides
from lapis._util import run_layout as runs
from lapis._util.metrics import WATCHED_IMAGES
from lapis._util.terminal import echo
from lapis.cli.completion import MODEL_OR_PRESET, Named
from lapis.cli.options import PATH, json_option
from lapis.config import PRESETS, LapisConfig, nearest, preset
from lapis.data.images import Images, spread
from lapis.data.open import open_images, resolve_data
from lapis.data.packaged import packaged_images
from lapis.energy.costs import INT8_TABLES
from lapis.energy.operations import MEMORY, Memory
from lapis.errors import LapisError
from lapis.report import energy_table
from lapis.runtime import Session
from lapis.trace import POINTS, Point, Tally

# Images per batch; the codes of a batch are kept in memory.
BATCH = 32


@click.command()
@click.argument("model", required=False, type=MODEL_OR_PRESET)
@click.option(
    "--activity",
    multiple=True,
    metavar="POINT=SHARE",
    help=f"Share of values that spike, all=0.3 or per point: {', '.join(POINTS)}.",
)
@click.option("--activities", type=PATH, help="JSON: shares by point, a list of seven, or a run's activity.json.")
@click.option("--data", type=click.Path(), help="Measure the activities of MODEL on this data.")
@click.option("--set", "set_", multiple=True, metavar="FIELD=VALUE", help="Change the configuration; may be repeated.")
@click.option("--convention", show_default="paper", help=f"What is counted: {', '.join(energy.CONVENTIONS)}, gates.")
@click.option(
    "--costs",
    type=Named("costs", energy.tables, files=True),
    default="45nm",
    show_default=True,
    help=f"Picojoules: {', '.join(energy.tables())}, or a JSON file.",
)
@click.option("--memory", default="off", show_default=True, help=f"Add weight fetches: {', '.join(MEMORY)}.")
@click.option("--network", type=PATH, help="Price another spiking network: a JSON file.")
@click.option("--compare", is_flag=True, help="Show every convention side by side.")
@json_option
def command(
    model: str | None,
    activity: tuple[str, ...],
    activities: Path | None,
    data: str | None,
    set_: tuple[str, ...],
    convention: str | None,
    costs: str,
    memory: Memory,
    network: Path | None,
    compare: bool,
    as_json: bool,
) -> None:
    """Estimate the energy per image: operations are counted, priced and summed under a convention.

    MODEL is a preset, priced as deployed (W6, power-of-two rows), or a trained or packed model. For a run, the
    activities of its last test are used; for others they are measured on --data, or on the packaged images.

    \b
    Example:
      lapis energy lapis_large --activity all=0.3 --compare
    """
    table = energy.load_costs(costs)
    config: LapisConfig | energy.SpikingNetwork
    rho = None
    if network is None:
        config, rho, source = subject(model, data, activities, overrides.split_pairs(activity, "--activity"), set_)
        facts = {"activities": rho.over_blocks(), "activities_from": source}
        heading = (
            f"{model or 'measured network'}: {config.depth} blocks, width {config.width}, {config.tokens} tokens, "
            f"T={config.window}, W{config.weight_bits}, {config.row_scale} rows, readout {config.readout}",
            f"activities: {source}",
        )
    elif any((model, activity, activities, data, set_)):
        raise LapisError(
            "--network holds its own layers and rates; leave out MODEL, --activity, --activities, --data, --set"
        )
    else:
        config, compare = energy.load_spiking_network(network), True
        facts = {"reported": config.reported}
        heading = (
            f"{config.name}: {config.fields.get('source', network)}",
            f"rates: {config.fields.get('rate_source', network)}",
        )
    result = energy.estimate(config, rho, convention, table, memory)
    every = energy.side_by_side(config, rho, table, memory) if compare else []
    priced = [result]
    if network is None and costs in INT8_TABLES:
        priced.append(energy.estimate(config, rho, convention, INT8_TABLES[costs], memory))
    if as_json:
        content = result.to_dict() | facts
        content["rivals"] = energy_table.rival_records(priced)
        content["conventions"] = [other.summary() for other in every]
        echo(json.dumps(content))
        return
    echo(*heading, *_terms(result), "")
    TableConsole().print(energy_table.operators(result))
    if network is None:
        TableConsole().print("", energy_table.rivals(priced))
    if every:
        TableConsole().print("", energy_table.conventions(every))
    if isinstance(config, energy.SpikingNetwork):
        echo("", *(f"reported: {mj:g} mJ, {where}" for where, mj in config.reported.items()))


def _terms(result: energy.Estimate) -> Iterator[str]:
    """What is counted, at which costs, and how long an answer takes."""
    table, fetched = result.costs, {"once": "once per image", "each": "for each operation on it"}.get(result.memory)
    yield f"latency: {result.latency_steps} time steps"
    yield f"{result.convention.name} convention: {result.convention.counted}"
    included = f"counted: every weight fetched {fetched}" if fetched else "not counted"
    yield f"costs: {table.name} ({table.node}); memory access {included}"
    if table.unit is not None:
        yield f"all costs are ratios to one {table.unit.operation}, taken as {table.unit.pj:g} pJ: {table.unit.source}"


def subject(
    model: str | None, data: str | None, file: Path | None, given: Mapping[str, str], changes: Sequence[str]
) -> tuple[LapisConfig, energy.Activities, str]:
    """The network, the shares of its values that spike, and where those come from.

    A preset is priced as the paper deploys it, unless --set says otherwise.
    """
    chosen = [name for name, there in (("--data", data), ("--activities", file), ("--activity", given)) if there]
    if len(chosen) > 1:
        raise LapisError(f"{' and '.join(chosen)} given; use one of them")
    if model is None and not file:
        raise LapisError(f"no MODEL given; use a trained or packed model, or a preset: {', '.join(sorted(PRESETS))}")
    if given:
        config = overrides.apply(_config_of(str(model)), changes)
        return config, energy.Activities.uniform(config, _rates(given)), "given"
    if file is None and data is None and model is not None:
        recorded = Path(model) / runs.ACTIVITY_FILE
        if recorded.is_file():
            file, model = recorded, None
        elif model in PRESETS:
            raise LapisError(f"{model} is a preset and has no activities; give --activity all=0.3 or --activities FILE")
    if file is not None:
        rho, config, source = energy.load_activities(file, None if model is None else _config_of(model))
        return overrides.apply(config, changes), rho, source
    assert model is not None
    config, tally, source = measured(model, data)
    return overrides.apply(config, changes), energy.Activities.measured(config, tally), source


def _config_of(model: str) -> LapisConfig:
    if model in PRESETS:
        return preset(model).deployed()
    if models.find(model) is None:
        raise LapisError(
            f"no preset, file, run or packaged model is called {model!r}; {nearest(model, PRESETS)}".strip()
        )
    return models.load(model).config


def measured(model: str, data: str | None) -> tuple[LapisConfig, Tally, str]:
    """The configuration of a trained or packed model, the tally of its spikes on images, and which images."""
    whole = packaged_images() if data is None else open_images(resolve_data(Path(data), None), "test")
    images = spread(whole, WATCHED_IMAGES)
    source = f"measured on {len(images)} images of {data or 'the packaged CIFAR-10 sample'}"
    opened = models.load(model)
    if opened.kind != "packed":
        return *_measured_in_torch(opened, images), source
    session, tally = Session(opened.network), Tally()
    for start in range(0, len(images), BATCH):
        part = range(start, min(start + BATCH, len(images)))
        tally.add(session.watch([images[index] for index in part]).trace)
    return session.config, tally, source


def _measured_in_torch(opened: models.Model, images: Images) -> tuple[LapisConfig, Tally]:
    models.require_torch(f"{opened.source} is {models.KINDS[opened.kind]}, and counting its spikes")
    from lapis.convert.torch_executor import DeployedEvaluator
    from lapis.data.loader import TestBatches
    from lapis.train.evaluate import evaluate

    network = opened.torch()
    if not network.config.quantize:
        raise LapisError(f"{opened.source} is a dense network: it has no spikes and no activity to measure")
    runner = DeployedEvaluator(network, opened.preprocess)
    return network.config, evaluate(runner, TestBatches(images, opened.preprocess, BATCH)).tally


def _rates(given: Mapping[str, str]) -> dict[Point, float]:
    rates: dict[Any, float] = {}
    for name, text in given.items():
        try:
            share = float(text)
        except ValueError as error:
            raise LapisError(f"--activity {name}={text} is not a number; give a share from 0 to 1") from error
        rates.update(dict.fromkeys(POINTS, share) if name == "all" else {name: share})
    return rates


# In a narrow terminal or a pipe, rich would cut off digits of tables.
TABLE_WIDTH = 110


class TableConsole(Console):
    """Standard output, wide enough for the tables."""

    def __init__(self) -> None:
        # Without markup: a name may hold brackets.
        super().__init__(highlight=False, markup=False, width=max(Console().width, TABLE_WIDTH))

    def on_broken_pipe(self) -> NoReturn:
        """Let `lapis.cli.main` end the command; rich would exit with 1, which means that a check failed."""
        raise BrokenPipeError

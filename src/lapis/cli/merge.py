"""`lapis merge`: combine the shards of an evaluation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from lapis._util.files import read_json
from lapis._util.terminal import echo
from lapis.cli.evaluate import table
from lapis.cli.options import json_option
from lapis.config import LapisConfig
from lapis.energy import energy_of
from lapis.energy.activity import tally_from_dict, tally_to_dict
from lapis.errors import LapisError
from lapis.runtime import Evaluation, merge
from lapis.trace import Tally


@click.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@json_option
def command(results: tuple[Path, ...], as_json: bool) -> None:
    """Combine the results that `lapis evaluate --shard I/N --json` printed on each process or machine.

    Every shard is needed once; a missing or repeated shard, or one of another set or network, is an error. Activity
    and energy are those of the images that all shards counted together.

    \b
    Example:
      lapis merge part0.json part1.json part2.json part3.json
    """
    record = _merged([_read(path) for path in results])
    echo(*([json.dumps(record)] if as_json else table(record)))


def _merged(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One result with the fields of its parts; activity and energy follow from the counts of all of them."""
    whole = merge(Evaluation.from_dict(record) for record in records)
    config, tally = _config(records), Tally()
    for record in records:
        tally.merge(tally_from_dict(record.get("tally"), "a result's tally")[0])
    return {
        # A file may lie elsewhere on each machine, and a machine may have other kernels.
        **{name: _joined(records, name) for name in ("model", "state", "executor")},
        **whole.to_dict(),
        "activity": {point: round(share, 6) for point, share in tally.activities().items()},
        "energy": energy_of(config, tally),
        "config": config.to_dict(),
        "tally": tally_to_dict(tally),
        "classes_matched": _joined(records, "classes_matched"),
        # Every shard left the same images of the set out.
        "trained_on": records[0].get("trained_on", 0),
    }


def _config(records: Sequence[dict[str, Any]]) -> LapisConfig:
    """The configuration that all results share."""
    first = records[0].get("config")
    shared = ("config", "trained_on")
    if not isinstance(first, dict) or any(r.get(name) != records[0].get(name) for r in records for name in shared):
        raise LapisError("these results are of different networks; evaluate one network in all shards")
    return LapisConfig.from_dict(first)


def _joined(records: Sequence[dict[str, Any]], name: str) -> str:
    return ", ".join(dict.fromkeys(str(record.get(name)) for record in records))


def _read(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict) or "tally" not in content:
        raise LapisError(f"{path} is not a result of lapis evaluate --shard I/N --json; evaluate that shard again")
    return content

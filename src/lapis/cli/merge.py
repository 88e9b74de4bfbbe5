"""`lapis merge`: combine the shards of an evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import click

from lapis.cli.options import json_option
from lapis.errors import LapisError
from lapis.runtime import Evaluation, merge


@click.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@json_option
def command(results: tuple[Path, ...], as_json: bool) -> None:
    """Combine the results that `lapis evaluate --shard I/N --json` printed on each process or machine.

    Every shard is needed once; a missing or repeated shard, or one of another set, is an error.

    \b
    Example:
      lapis merge part0.json part1.json part2.json part3.json
    """
    whole = merge(Evaluation.from_dict(_read(path)) for path in results)
    if as_json:
        click.echo(json.dumps(whole.to_dict()))
        return
    click.echo(f"top-1   {whole.top1:.2f} %\ntop-5   {whole.top5:.2f} %\nimages  {whole.images}")
    if whole.unreadable:
        click.echo(f"{len(whole.unreadable)} images could not be read and were left out")


def _read(path: Path) -> dict[str, object]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise LapisError(f"{path} is not a result of lapis evaluate --json: {error}") from error
    if not isinstance(content, dict):
        raise LapisError(f"{path} is not a result of lapis evaluate --json: it holds no object")
    return content

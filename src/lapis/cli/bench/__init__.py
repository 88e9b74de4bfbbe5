"""`lapis bench`: speed, memory and energy on this machine, compared with other software."""

from __future__ import annotations

import click

from lapis.cli.bench import energy, engine, events, growth, kernels, memory, needs, roofline, simulator, soak, stages
from lapis.cli.groups import Commands


@click.group(cls=Commands)
def command() -> None:
    """Measure speed, memory and energy on this machine.

    Contenders run in turns, so only ratios within one run are meaningful. Tables go to standard output;
    files are written only with --out.

    \b
    Example:
      lapis bench kernels --size train
    """


for _module in (kernels, roofline, needs, engine, stages, events, growth, soak, memory, energy, simulator):
    command.add_command(_module.command, _module.__name__.rpartition(".")[2])

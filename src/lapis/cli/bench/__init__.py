"""`lapis bench`: how fast this machine is, and how much memory and energy it takes, beside the alternatives."""

from __future__ import annotations

import click

from lapis.cli.bench import energy, engine, growth, kernels, memory, soak, stages


@click.group()
def command() -> None:
    """Measure speed, memory and energy on this machine.

    Contenders take turns, so only ratios within one run mean something. Tables go to standard output;
    only --out writes files.

    \b
    Example:
      lapis bench kernels --size train
    """


for _module in (kernels, engine, stages, growth, soak, memory, energy):
    command.add_command(_module.command, _module.__name__.rpartition(".")[2])

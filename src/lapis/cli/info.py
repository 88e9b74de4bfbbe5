"""`lapis info`: the installed versions and this machine."""

from __future__ import annotations

import json
import platform
from importlib import metadata

import click

import lapis
from lapis import native
from lapis.bench.machine import processor
from lapis.cli.options import json_option

# Packages that a bug report should name, if they are installed.
PACKAGES = ("numpy", "safetensors", "pillow", "torch", "timm")


@click.command()
@json_option
def command(as_json: bool) -> None:
    """Show versions, the machine and the kernels in use, for example for a bug report.

    \b
    Example:
      lapis info --json
    """
    facts = report()
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        click.echo(f"{name:<{width}}  {value}")


def report() -> dict[str, str]:
    """Name and value of everything that a bug report should say."""
    facts = {
        "lapis": lapis.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": processor(),
        "kernels": native.describe(),
    }
    for package in PACKAGES:
        try:
            facts[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            facts[package] = "not installed"
    return facts

"""`lapis doctor`: check this machine."""

from __future__ import annotations

import dataclasses
import json

import click

from lapis._util.terminal import echo
from lapis.cli.machine_check import checks
from lapis.cli.options import json_option
from lapis.errors import EXIT_CHECK_FAILED, EXIT_OK

MARKS = {"ok": "ok     ", "missing": "missing", "failed": "FAILED "}


@click.command()
@click.option(
    "--seconds", type=click.FloatRange(0), default=10.0, show_default=True, help="How long the speed tests take in all."
)
@json_option
def command(seconds: float, as_json: bool) -> int:
    """Check this machine: device, kernels, a bit-exact self-test, speed, and what is missing.

    What is missing only makes something slower or unavailable. The exit code is 1 if a check failed: then an answer
    was wrong, and the advice beside it says how to go on.

    \b
    Example:
      lapis doctor
      lapis doctor --seconds 1 --json
    """
    found = []
    for check in checks(seconds):
        found.append(check)
        if not as_json:
            echo(f"{MARKS[check.state]}  {check.name}: {check.found}")
            if check.advice and check.state != "ok":
                echo(f"         {check.advice}")
    sound = all(check.state != "failed" for check in found)
    if as_json:
        facts = {"sound": sound, "checks": [dataclasses.asdict(check) for check in found]}
        echo(*json.dumps(facts, indent=2).split("\n"))
    return EXIT_OK if sound else EXIT_CHECK_FAILED

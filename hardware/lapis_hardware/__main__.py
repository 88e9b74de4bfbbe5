"""`python -m lapis_hardware`: an attention head as a circuit: write it, prove it, measure it."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from lapis import LapisError, models
from lapis.data.packaged import packaged_images
from lapis.deploy import Network, watch
from lapis.preprocess import Pixels
from lapis_hardware import account, gates, tools
from lapis_hardware.figure import gates_figure
from lapis_hardware.folder import write_design, write_modules, write_tables
from lapis_hardware.fpga import DEVICE_NAME, place
from lapis_hardware.head import Head, head_of
from lapis_hardware.lanes import lanes_of
from lapis_hardware.liberty import load
from lapis_hardware.measure import PAPER_SHARE, measure, packaged_library, prepare
from lapis_hardware.rows import rows_of
from lapis_hardware.simulate import FORMS
from lapis_hardware.table import lane_lines
from lapis_hardware.verify import DEFAULT_ROWS, SIMULATORS, Verified, check_rows, second_opinion, verify

# Codes of two images: more change the energies by less than the choice of a library does.
MEASURED_IMAGES = 2
EXIT_DIFFERENT, EXIT_BAD_INPUT = 1, 2
FPGA_LANES = ("minimum", "difference", "temporal", "dot")


@dataclass(frozen=True)
class Options:
    """What was asked for, by the names of the options."""

    block: int
    head: int
    verified: bool
    rows: int
    simulator: str
    measured: bool
    liberty: Path | None
    only: tuple[str, ...]
    paper: bool
    figure: Path | None
    fpga: bool


@click.command()
@click.argument("model")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Folder to write the design to.")
@click.option("--block", type=int, default=0, show_default=True, help="The block of the head that is written.")
@click.option("--head", type=int, default=0, show_default=True, help="The head that is written.")
@click.option("--verify", "verified", is_flag=True, help="Simulate it and compare every row with the integer model.")
@click.option(
    "--rows",
    type=click.IntRange(1),
    default=DEFAULT_ROWS,
    show_default=True,
    help="With --verify: rows (queries) to compare.",
)
@click.option(
    "--simulator", type=click.Choice(SIMULATORS), default="verilator", show_default=True, help="With --verify: which."
)
@click.option("--measure", "measured", is_flag=True, help="Synthesize every lane and count area, delay and energy.")
@click.option(
    "--liberty",
    type=click.Path(path_type=Path),
    help="With --measure: a standard-cell library; default: IHP SG13G2, 130 nm.",
)
@click.option(
    "--only", multiple=True, metavar="LANE", help="With --measure or --fpga: only this lane; may be repeated."
)
@click.option(
    "--paper", is_flag=True, help="With --measure: codes without OFF neurons, thinned to the paper's activity."
)
@click.option("--figure", type=click.Path(path_type=Path), help="With --measure: area against energy, as PNG.")
@click.option("--fpga", is_flag=True, help="Place the score lanes on an iCE40: logic cells and clock.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def command(model: str, out: Path | None, as_json: bool, **options: Any) -> int:
    """Write one attention head of MODEL as SystemVerilog, check it against the integer model, measure it in gates.

    The folder holds one module per file with the parameters of MODEL, the tables of the head, a testbench and the
    vectors of a real image. With --verify the testbench runs in Verilator on rows of real images through every head
    (and a few rows in Icarus, where it is installed): distance, affinity, row sum, exponent, sums and readout codes
    must be equal. Exit 0 only if nothing differs. With --measure each lane is synthesized by Yosys, and its energy is
    counted from the toggles of its gates on real codes. MODEL needs integer weights; see hardware/README.md.

    \b
    Example:
      python -m lapis_hardware lapis_tiny.cifar10 -o head
      python -m lapis_hardware lapis_tiny.cifar10 --verify
      python -m lapis_hardware lapis_tiny.cifar10 --measure --only minimum --only dot
    """
    asked = Options(**options)
    _check(out, asked)
    network = models.load(model).network
    circuit = head_of(network, asked.block, asked.head)
    record: dict[str, Any] = {
        "model": model, "block": asked.block, "head": asked.head, "parameters": circuit.parameters,
    }  # fmt: skip
    lines: list[str] = []
    if out is not None:
        record["files"] = _write(out, network, circuit)
        lines += _written_lines(out, circuit, len(record["files"]))
    equal = True
    if asked.verified:
        results = _verify(network, asked.rows, asked.simulator)
        record["verified"] = [_record(one) for one in results]
        lines += [line for one in results for line in _verified_lines(one)]
        equal = not any(one.different for one in results)
    if asked.measured:
        lines += _measure(network, asked, record)
    if asked.fpga:
        lines += _place(network, asked, record)
    click.echo(json.dumps(record) if as_json else "\n".join(lines))
    return 0 if equal else EXIT_DIFFERENT


def _check(out: Path | None, asked: Options) -> None:
    """Refuse what cannot work before anything is computed."""
    if out is None and not (asked.verified or asked.measured or asked.fpga):
        raise LapisError("nothing to do: give -o FOLDER to write the design, or --verify, --measure or --fpga")
    if out is not None and not out.is_dir() and (out.exists() or not out.parent.is_dir()):
        raise LapisError(f"--out {out} must be a folder, or a new one in a folder that exists")
    if asked.measured or asked.fpga:
        tools.require("yosys")
    if asked.measured:
        gates.library()
    if asked.fpga:
        tools.require("nextpnr")
    if asked.figure is not None and (asked.figure.suffix != ".png" or not asked.measured):
        raise LapisError("--figure goes with --measure and ends in .png")


def _measure(network: Network, asked: Options, record: dict[str, Any]) -> list[str]:
    """Measure the lanes, note them in the record, and draw them; gives the lines to print."""
    library = packaged_library() if asked.liberty is None else load(asked.liberty)
    images = _images(network, MEASURED_IMAGES)
    with _scratch() as folder:
        circuit, stimuli = prepare(folder, network, images, PAPER_SHARE if asked.paper else None)
        _check_lanes(asked.only, [lane.name for lane in lanes_of(circuit.parameters)])
        found = list(measure(folder, circuit, stimuli, library, asked.only))
    by_name = {one.name: one for one in found}
    whole = account.rows(by_name, circuit.parameters)
    record["library"] = library.name
    record["activity"] = stimuli.activity
    record["measured"] = [vars(one) for one in found]
    record["row"] = [vars(one) for one in whole]
    if asked.figure is not None:
        gates_figure(by_name, circuit.parameters["CHANNELS"], library.name).savefig(asked.figure)
    shares = ", ".join(f"{name} {share:.0%}" for name, share in stimuli.activity.items())
    return [f"{library.name}, {library.voltage} V; codes that are not zero: {shares}", *lane_lines(found, whole)]


def _place(network: Network, asked: Options, record: dict[str, Any]) -> list[str]:
    with _scratch() as folder:
        circuit = head_of(network)
        write_modules(folder, circuit.parameters)
        write_tables(folder, circuit)
        lanes = [lane for lane in lanes_of(circuit.parameters) if lane.name in (asked.only or FPGA_LANES)]
        _check_lanes(asked.only, [lane.name for lane in lanes_of(circuit.parameters)])
        found = [place(folder, lane) for lane in lanes]
    record["fpga"] = {"device": DEVICE_NAME, "lanes": [vars(one) for one in found]}
    return [
        f"{DEVICE_NAME}, placed and routed:",
        *(f"  {one.lane:12} {one.cells:>6,} logic cells  {one.clock_mhz:6.1f} MHz" for one in found),
    ]


def _check_lanes(only: tuple[str, ...], known: list[str]) -> None:
    for name in only:
        if name not in known:
            raise LapisError(f"there is no lane {name!r}; lanes: {', '.join(known)}")


def _write(out: Path, network: Network, circuit: Head) -> list[str]:
    trace = watch(network, _images(network, 1)).trace
    rows = rows_of(network, trace, circuit.block, circuit.head)
    out.mkdir(exist_ok=True)
    written = write_design(out, circuit, rows)
    return [path.name for path in written]


def _verify(network: Network, rows: int, simulator: str) -> list[Verified]:
    tools.require(simulator)
    images = _images(network, check_rows(rows, len(packaged_images().pixels), network))
    with _scratch() as folder:
        found = [verify(network, images, folder, simulator, rows)]
    if simulator != "icarus":
        with _scratch() as folder:
            more = second_opinion(network, images, folder)
        found += [] if more is None else [more]
    return found


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lapis-hardware-") as folder:
        yield Path(folder)


def _images(network: Network, count: int) -> Pixels:
    return np.stack([network.preprocess.resize(image) for image in packaged_images().pixels[:count]])


def _written_lines(out: Path, circuit: Head, files: int) -> list[str]:
    p = circuit.parameters
    return [
        f"{out}: {files} files, head {circuit.head} of block {circuit.block}",
        f"{p['CHANNELS']} channels, {p['KEYS']} keys, window {p['WINDOW']}, codes of {p['CODE_BITS']} bits, "
        f"{p['DISTANCES']} distances, affinities of {p['AFFINITY_BITS']} bits, sums of {p['SUM_BITS']} bits",
        f"top: attention_head (FORM 0 to 2: {', '.join(FORMS)}); testbench: bench, run it in {out}",
    ]


def _record(one: Verified) -> dict[str, Any]:
    return {
        "simulator": one.simulator,
        "rows": one.rows,
        "heads": one.heads,
        "different": one.different,
        "comparisons": [vars(each) for each in one.comparisons],
    }


def _verified_lines(one: Verified) -> list[str]:
    lines = [f"{one.simulator}: {one.rows:,} rows of {one.heads} heads; {one.different:,} differences"]
    for each in sorted(one.comparisons, key=lambda each: FORMS.index(each.form)):
        lines.append(f"  {each.form:10} {each.quantity:13} {each.compared:>9,} compared  {each.different:,} different")
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Run the command; bad input is one line on standard error."""
    try:
        return int(command.main(arguments, prog_name="python -m lapis_hardware", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
    except LapisError as error:
        click.echo(f"error: {error}", err=True)
    return EXIT_BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())

"""`lapis verify`: check that the trained network, the integer model and the spiking network agree."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import click

from lapis import models, native
from lapis._util.progress import Display
from lapis._util.terminal import echo
from lapis.bridges.onnx_run import onnx_executors
from lapis.cli.completion import MODEL
from lapis.cli.options import data_option, images_option, json_option, quiet_option, trained_on_note
from lapis.convert.agreement import Executor, Report, in_batches, spiking_executor, verify
from lapis.data.images import spread
from lapis.data.open import all_images, held_out, resized_batches
from lapis.deploy import integer
from lapis.deploy.network import Network
from lapis.deploy.simulate import Events
from lapis.errors import EXIT_CHECK_FAILED, EXIT_OK, LapisError
from lapis.models import Opened
from lapis.runtime.engine import Engine

# What can be compared with the integer model, in the order of the output.
EXECUTORS = {
    "spikes": "the spiking network, step by step",
    "native": "the native engine",
    "stages": "each stage of the trained network on the integer model's codes",
    "trained": "the trained network as it is evaluated",
    "float": "the trained network as it was trained, in FP32",
    "onnx": "the exported file in ONNX Runtime, at every level of optimisation, with one and two threads",
}
REFERENCES = {"integers": "the integer model", "native": "the native engine"}
TOLERANCES = {"equal": "bit for bit", "ties": "but for ties", "none": "reported"}
BATCH = 8
LARGEST_BATCH = 1024


@click.command()
@click.argument("model", type=MODEL)
@data_option("Folder with test images; the packaged CIFAR-10 sample by default")
@images_option(16)
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(list(EXECUTORS)),
    help="Compare only this executor; may be repeated. Default: all that the file allows, except onnx.",
)
@click.option(
    "--reference",
    type=click.Choice(["integers", "native"]),
    default="integers",
    show_default=True,
    help="What to compare with: the numpy integer model, or the engine, which is fast enough for whole test sets.",
)
@click.option(
    "--batch",
    default=str(BATCH),
    show_default=True,
    metavar="SIZES",
    help="Images at a time; with several, as 1,8, every executor runs with each, and all must give the same bits.",
)
@quiet_option
@json_option
def command(
    model: str,
    data: Path | None,
    count: int,
    only: tuple[str, ...],
    reference: str,
    batch: str,
    quiet: bool,
    as_json: bool,
) -> int:
    """Compare every way to run MODEL with the integer model: every code at every measuring point, and the logits.

    This compares the spiking network, the native engine, and the trained network: stage by stage, as it is evaluated,
    and in FP32 as it was trained. With --only onnx it compares the file of `lapis export` in ONNX Runtime. MODEL is a
    training checkpoint, a run's folder, a packed file or a packaged name. A packed file has no trained network to
    compare with. With integer weights the codes must be equal bit for bit; the
    first code that differs is named. Exit 0 only if all agree.

    \b
    Example:
      lapis verify runs/cifar10_tiny_w6 --data ~/data -n 256
      lapis verify lapis_tiny_cifar10 --batch 1,8
      lapis verify lapis_tiny_cifar10 --only onnx
      lapis verify runs/cifar10_tiny_w6 --data ~/data -n 10000 --reference native --only trained --only float
    """
    sizes = _sizes(batch)
    opened = models.open(model)
    network = opened.network()
    executors, events = _executors(opened, network, only)
    executors = _at_each_size(executors, network, sizes)
    whole = all_images(data)
    unseen = held_out(whole, network.trained_slice)
    images = spread(unseen, count)
    labelled = len(images.classes) == network.config.classes
    with Display("verify", len(images), quiet=quiet) as display:
        resized = resized_batches(images, network.preprocess, max(sizes))
        batches = ((pixels, labels if labelled else None) for pixels, labels in resized)
        stand_in = None if reference == "integers" else (reference, _checked_native(network))
        report = verify(network, executors, batches, display.update, stand_in)
    facts = {"model": model, "trained_on": len(whole) - len(unseen)}
    record = facts | _record(report, network, events)
    echo(*([json.dumps(record)] if as_json else _table(record)))
    return EXIT_OK if report.passed else EXIT_CHECK_FAILED


def _executors(opened: Opened, network: Network, only: tuple[str, ...]) -> tuple[dict[str, Executor], Events]:
    """The chosen executors, and the events that the spiking one counts."""
    events, trained = Events(), opened.kind == "checkpoint"
    default = {"spikes": True, "native": _runs_native(network), "onnx": False}
    chosen = only or tuple(name for name in EXECUTORS if default.get(name, trained))
    table: dict[str, Executor] = {}
    if "spikes" in chosen:
        table["spikes"] = spiking_executor(network, events)
    if "native" in chosen:
        table["native"] = _checked_native(network)
    if {"stages", "trained", "float"} & set(chosen):
        if not trained:
            raise LapisError(f"{opened.path} is packed and holds no trained network; verify its checkpoint instead")
        from lapis.convert.executors import float_executor, stagewise_executor, trained_executor

        builders = {"stages": stagewise_executor, "trained": trained_executor, "float": float_executor}
        model = opened.model()
        table |= {name: make(model, network) for name, make in builders.items() if name in chosen}
    if "onnx" in chosen:
        table |= onnx_executors(network)
    return table, events


def _record(report: Report, network: Network, events: Events) -> dict[str, Any]:
    """What --json prints of a comparison."""
    record: dict[str, Any] = {
        "images": report.reference.images,
        "exact": network.exact,
        "window": network.config.window,
        "checks_passed": report.passed,
        "reference": report.reference.name,
        "executors": {agreement.name: agreement.to_dict() for agreement in (report.reference, *report.agreements)},
    }
    if report.labelled:
        record["top1"] = {a.name: round(100 * a.right / a.images, 3) for a in (report.reference, *report.agreements)}
    if events.images:
        record["spiking"] = {
            "spikes_per_image": sum(events.spikes.values()) / events.images,
            "synaptic_operations_per_image": sum(events.operations.values()) / events.images,
            "latency_steps": events.window_steps,
            "longest_leak_steps": max(events.leak_steps.values()),
        }
    return record


def _sizes(text: str) -> list[int]:
    """The batch sizes of --batch, each once, the smallest first."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() and 0 < int(part) <= LARGEST_BATCH for part in parts):
        raise LapisError(f"--batch {text!r} is not a list of sizes from 1 to {LARGEST_BATCH}; write it as 1,8")
    return sorted({int(part) for part in parts})


def _at_each_size(table: dict[str, Executor], network: Network, sizes: list[int]) -> dict[str, Executor]:
    """Every executor with every batch size; the reference runs with the largest, so it is compared with the others."""
    if len(sizes) == 1:
        return table
    integers = Executor(partial(integer.watch, network), "equal")
    smaller = {f"integers x{size}": in_batches(integers, size) for size in sizes[:-1]}
    return smaller | {f"{name} x{size}": in_batches(one, size) for name, one in table.items() for size in sizes}


def _runs_native(network: Network) -> bool:
    return network.exact and native.available()


def _checked_native(network: Network) -> Executor:
    if not _runs_native(network):
        raise LapisError("the native engine needs integer weights and a built library; see `lapis info`")
    return Executor(Engine(network, 1).watch, "equal")


def _table(record: dict[str, Any]) -> list[str]:
    lines = [f"{record['model']}: {record['images']} images against {REFERENCES[record['reference']]}"]
    if record["trained_on"]:
        lines.append(trained_on_note(record["trained_on"]))
    if not record["exact"]:
        lines.append("Its weights are floats: executors agree up to the order of their sums.")
    lines.append(f"{'':15} {'tolerance':12} {'codes':>12} {'differ':>9} {'by':>4} {'top-1 same':>11} {'s/image':>8}")
    for name, row in record["executors"].items():
        if name == record["reference"]:
            continue
        # Some executors give no codes; what differs is then counted in images.
        codes = f"{row['codes']:,}" if row["codes"] else "logits only"
        differing = row["codes_differing"] if row["codes"] else row["images_with_other_logits"]
        lines.append(
            f"{name:15} {TOLERANCES[row['tolerance']]:12} {codes:>12} {differing:9,} "
            f"{row['largest_code_difference']:4} {row['same_top1']:>5}/{row['images']:<5} "
            f"{row['seconds_per_image']:8.3f}  {_verdict(row)}"
        )
    for name, row in record["executors"].items():
        if row["first_mismatch"]:
            lines.append(f"first difference of {name}: {row['first_mismatch']['text']}")
    if "top1" in record:
        lines.append("top-1 in %  " + "  ".join(f"{name} {share:.2f}" for name, share in record["top1"].items()))
    if "spiking" in record:
        facts = record["spiking"]
        lines.append(
            f"one image as spikes: {facts['spikes_per_image']:,.0f} spikes, "
            f"{facts['synaptic_operations_per_image']:,.0f} synaptic operations, {facts['latency_steps']} steps"
        )
    lines.append(
        "PASS: every executor agrees"
        if record["checks_passed"]
        else "FAIL: an executor differs by more than its tolerance"
    )
    return lines


def _verdict(row: dict[str, Any]) -> str:
    if row["tolerance"] == "none":
        return ""
    return "pass" if row["passed"] else "FAIL"

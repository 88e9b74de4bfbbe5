"""`lapis verify`: check that the trained network, the integer model and the spiking network agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lapis import models, native
from lapis._util.progress import Display
from lapis.bridges.onnx_run import onnx_executors
from lapis.cli.completion import MODEL
from lapis.cli.options import data_option, images_option, json_option, quiet_option, show
from lapis.convert.verification import Executor, Report, in_batches, integer_executor, spiking_executor, verify
from lapis.data.open import resized_batches, some_images
from lapis.deploy.simulate import Events
from lapis.errors import EXIT_CHECK_FAILED, EXIT_OK, LapisError
from lapis.models import Model
from lapis.runtime.engine import Engine

# What can be compared with the integer model, in the order of the output.
EXECUTORS = ("spikes", "native", "stages", "trained", "float", "onnx")
TOLERANCES = {"equal": "none", "ties": "rounding", "none": "not judged"}
LARGEST_BATCH = 1024


@click.command()
@click.argument("model", type=MODEL)
@data_option("Folder with test images; the packaged CIFAR-10 sample by default")
@images_option(16)
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(EXECUTORS),
    metavar="EXECUTOR",
    help="Only this one; may be repeated. Default: all that the file allows, except onnx.",
)
@click.option(
    "--batch",
    default="8",
    show_default=True,
    metavar="SIZES",
    help="Images at a time; with several, as 1,8, all must give the same bits.",
)
@quiet_option
@json_option
def command(
    model: str, data: Path | None, count: int, only: tuple[str, ...], batch: str, quiet: bool, as_json: bool
) -> int:
    """Compare every way to run MODEL with the integer model: every code at every measuring point, and the logits.

    Executors: spikes (step by step), native (the engine), onnx (the exported file in ONNX Runtime); of a checkpoint
    also stages (each on the integer model's codes), trained (as evaluated) and float (as trained, in FP32). MODEL is a
    packed file, a packaged name, a checkpoint or a run's folder. The first code that differs is named. Exit 1 if an
    executor differs by more than its tolerance.

    \b
    Example:
      lapis verify lapis_tiny.cifar10 -n 4 --batch 1,4
    """
    parts = batch.split(",")
    if not all(part.strip().isdecimal() and 0 < int(part) <= LARGEST_BATCH for part in parts):
        raise LapisError(f"--batch {batch!r} is not a list of sizes from 1 to {LARGEST_BATCH}; write it as 1,8")
    sizes = sorted({int(part) for part in parts})
    opened = models.load(model)
    network, events = opened.network, Events()
    executors = _executors(opened, events, only)
    if len(sizes) > 1:
        # The reference runs with the largest size, so it is compared with the others.
        smaller = {f"integers x{size}": in_batches(integer_executor(network), size) for size in sizes[:-1]}
        executors = smaller | {f"{n} x{size}": in_batches(one, size) for n, one in executors.items() for size in sizes}
    images = some_images(data, count)
    labelled = len(images.classes) == network.config.classes
    with Display("verify", len(images), quiet=quiet) as display:
        resized = resized_batches(images, network.preprocess, sizes[-1])
        batches = ((pixels, labels if labelled else None) for pixels, labels in resized)
        report = verify(network, executors, batches, display.update)
    record = {"model": model} | _record(report, network.config.window, events)
    show(record, _table(record), as_json)
    return EXIT_OK if report.passed else EXIT_CHECK_FAILED


def _executors(opened: Model, events: Events, only: tuple[str, ...]) -> dict[str, Executor]:
    """The chosen executors; the spiking one adds to `events`."""
    network, trained = opened.network, opened.kind == "checkpoint"
    default = {"spikes": network.compared_by == "l1", "native": native.available(), "onnx": False}
    chosen = only or tuple(name for name in EXECUTORS if default.get(name, trained))
    table: dict[str, Executor] = {}
    if "spikes" in chosen:
        table["spikes"] = spiking_executor(network, events)
    if "native" in chosen:
        if not native.available():
            raise LapisError("the native engine needs integer weights and a built library; see `lapis info`")
        table["native"] = Executor(Engine(network, 1).watch, "equal")
    if {"stages", "trained", "float"} & set(chosen):
        if not trained:
            raise LapisError(f"{opened.path} is packed and holds no trained network; verify its checkpoint instead")
        from lapis.convert.executors import float_executor, stagewise_executor, trained_executor

        builders = {"stages": stagewise_executor, "trained": trained_executor, "float": float_executor}
        model = opened.torch()
        table |= {name: make(model, network) for name, make in builders.items() if name in chosen}
    if "onnx" in chosen:
        table |= onnx_executors(network)
    return table


def _record(report: Report, window: int, events: Events) -> dict[str, Any]:
    """What --json prints of a comparison."""
    every = (report.reference, *report.agreements)
    record: dict[str, Any] = {
        "images": report.reference.images,
        "window": window,
        "checks_passed": report.passed,
        "reference": report.reference.name,
        "executors": {agreement.name: agreement.to_dict() for agreement in every},
    }
    if report.labelled:
        record["top1"] = {a.name: round(100 * a.right / a.images, 3) for a in every}
    if events.images:
        record["spiking"] = {
            "spikes_per_image": sum(events.spikes.values()) / events.images,
            "synaptic_operations_per_image": sum(events.operations.values()) / events.images,
            "latency_steps": events.window_steps,
            "longest_leak_steps": max(events.leak_steps.values()),
        }
    return record


def _table(record: dict[str, Any]) -> list[str]:
    lines = [
        f"{record['model']}: {record['images']} images, compared with the integer model",
        f"{'executor':15} {'tolerance':10} {'codes':>13} {'codes that':>10} {'largest':>10} {'same':>11} "
        f"{'seconds':>9}",
        f"{'':15} {'':10} {'compared':>13} {'differ':>10} {'difference':>10} {'top class':>11} {'per image':>9}",
    ]
    for name, row in record["executors"].items():
        if name == "integers":
            continue
        # Some executors give no codes; what differs is then counted in images.
        codes = f"{row['codes']:,}" if row["codes"] else "logits only"
        differing = row["codes_differing"] if row["codes"] else row["images_with_other_logits"]
        same = f"{row['same_top1']} of {row['images']}"
        verdict = "" if row["tolerance"] == "none" else "ok" if row["passed"] else "FAIL"
        lines.append(
            f"{name:15} {TOLERANCES[row['tolerance']]:10} {codes:>13} {differing:10,} "
            f"{row['largest_code_difference']:10} {same:>11} {row['seconds_per_image']:9.3f}  {verdict}".rstrip()
        )
    for name, row in record["executors"].items():
        if row["first_mismatch"]:
            lines.append(f"first difference of {name}: {row['first_mismatch']['text']}")
    if "top1" in record:
        shares = (f"{name} {share:.2f} %" for name, share in record["top1"].items())
        lines.append(f"top-1 accuracy: {', '.join(shares)}")
    if "spiking" in record:
        facts = record["spiking"]
        lines.append(
            f"one image as spikes: {facts['spikes_per_image']:,.0f} spikes, "
            f"{facts['synaptic_operations_per_image']:,.0f} synaptic operations, {facts['latency_steps']} time steps"
        )
    if record["checks_passed"]:
        return [*lines, "PASS: every executor agrees"]
    return [*lines, "FAIL: an executor differs by more than its tolerance"]

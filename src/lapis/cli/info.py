"""`lapis info`: what a network is and can answer, the installed versions, and a check of this machine."""

from __future__ import annotations

import dataclasses
import json
import math
import platform
from contextlib import suppress
from importlib import metadata
from typing import Any

import click

import lapis
from lapis import models, native
from lapis._util.machine import processor
from lapis._util.terminal import echo
from lapis.cli.completion import MODEL
from lapis.cli.machine_check import checks, first_gpu
from lapis.cli.options import json_option, show
from lapis.deploy import schema
from lapis.errors import EXIT_CHECK_FAILED, EXIT_OK, LapisError
from lapis.pack import pack
from lapis.runtime import Session

# Packages that a bug report should name, if they are installed.
PACKAGES = ("numpy", "safetensors", "pillow", "torch", "triton", "timm", "torchvision")
MARKS = {"ok": "ok     ", "missing": "missing", "failed": "FAIL   "}


@click.command()
@click.argument("model", required=False, type=MODEL)
@click.option("--tensors", is_flag=True, help="List the tensors of a packed file.")
@click.option("--check", is_flag=True, help="Check this machine: kernels, and a bit-exact self-test.")
@json_option
def command(model: str | None, tensors: bool, check: bool, as_json: bool) -> int:
    """Show what MODEL is: its classes, shape, preprocessing, size and memory. Without MODEL, versions and machine.

    MODEL is a packed file, a packaged name or a run's folder. A packed file is checked: packed again it must give the
    same bytes. --check tries the kernels of this machine; what is missing there only makes something slower. Exit 1
    if a check failed.

    \b
    Example:
      lapis info lapis_tiny.cifar10
      lapis info --check
    """
    if check:
        return _check_machine(as_json)
    if model is None:
        if tensors:
            raise LapisError("--tensors needs the name of a packed file")
        facts = environment()
        width = max(map(len, facts))
        show(facts, [f"{name:<{width}}  {value}" for name, value in facts.items()], as_json)
        return EXIT_OK
    record = network_record(model, tensors)
    show(record, _lines(record), as_json)
    return EXIT_OK if record.get("repacks_to_the_same_bytes", True) else EXIT_CHECK_FAILED


def network_record(model: str, tensors: bool) -> dict[str, Any]:
    """What is known of a network; of a packed file also its tensors, and whether it packs to the same bytes again."""
    opened = models.load(model)
    if opened.kind != "packed" and tensors:
        raise LapisError(f"{model} is {models.KINDS[opened.kind]}; `lapis pack` makes a packed file of a checkpoint")
    config, path = opened.config, opened.path
    record: dict[str, Any] = {
        "model": model,
        "kind": models.KINDS[opened.kind],
        "file": None if path is None else str(path),
        "bytes": path.stat().st_size if path is not None else None,
        "classes": list(opened.class_names) or [str(index) for index in range(config.classes)],
        "affinity_bits": config.affinity_bits,
        "config": config.to_dict(),
        "preprocess": opened.preprocess.to_dict(),
    }
    if opened.kind == "foreign":
        return record
    network, session = opened.network, Session(model)
    used = session.memory()
    record |= {
        "executor": session.executor,
        "weights_bytes": used["weights"],
        "working_bytes": used["working"],
        "fraction_bits": network.fraction_bits,
    }
    if opened.kind == "packed" and path is not None:
        record["repacks_to_the_same_bytes"] = path.read_bytes() == pack(network)
    if tensors:
        record["tensors"] = {
            tensor.name: {"dtype": schema.DTYPES[kind], "shape": list(shape), "bytes": math.prod(shape) * kind.itemsize}
            for tensor in schema.tensors(config)
            for kind, shape in [tensor.in_file(config)]
        }
    return record


def _lines(record: dict[str, Any]) -> list[str]:
    config, prepare, names = record["config"], record["preprocess"], record["classes"]
    size = "" if record["bytes"] is None else f", {record['bytes']:,} bytes ({record['file']})"
    lines = [
        f"{record['model']}: {record['kind']}{size}",
        f"classes   {len(names)}: {', '.join(names[:12])}{', ...' * (len(names) > 12)}",
        f"network   {config['style']}, {config['depth']} blocks, width {config['width']}, {config['heads']} heads, "
        f"T = {config['window']}, {config['weight_bits']}-bit weights, {record['affinity_bits']}-bit affinities",
        f"images    {config['image_size']} pixels, {prepare['interpolation']}, centre crop {prepare['crop']:g}",
    ]
    if "executor" in record:
        lines.append(
            f"memory    {record['weights_bytes'] / 1e6:.2f} MB of weights and tables, "
            f"{record['working_bytes'] / 1e6:.2f} MB to work in ({record['executor']}, 1 thread)"
        )
    lines += [
        f"  {name:24} {tensor['dtype']:4} {tensor['bytes']:12,} bytes  {' x '.join(map(str, tensor['shape']))}"
        for name, tensor in record.get("tensors", {}).items()
    ]
    if "repacks_to_the_same_bytes" in record:
        same = record["repacks_to_the_same_bytes"]
        lines.append("ok: packed again it gives the same bytes" if same else "FAIL: packed again it gives other bytes")
    return lines


def _check_machine(as_json: bool) -> int:
    found = []
    for check in checks():
        found.append(check)
        if not as_json:
            echo(f"{MARKS[check.state]}  {check.name}: {check.found}")
            if check.advice and check.state != "ok":
                echo(f"         {check.advice}")
    passed = all(check.state != "failed" for check in found)
    if as_json:
        echo(json.dumps({"passed": passed, "checks": [dataclasses.asdict(check) for check in found]}))
    return EXIT_OK if passed else EXIT_CHECK_FAILED


def environment() -> dict[str, str]:
    """Name and value of everything that a bug report should say."""
    versions = dict.fromkeys(PACKAGES, "not installed")
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return {
        "lapis": lapis.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": processor(),
        "kernels": native.describe(),
        "gpu": first_gpu(),
        **versions,
    }

"""`lapis info`: the installed versions, this machine, and what a model takes on it."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from importlib import metadata
from typing import Any

import click

import lapis
from lapis import models, native
from lapis._util.machine import processor
from lapis._util.terminal import echo
from lapis.cli.options import json_option
from lapis.runtime import Session

# Packages that a bug report should name, if they are installed.
PACKAGES = ("numpy", "safetensors", "pillow", "torch", "triton", "timm", "torchvision")
NOT_INSTALLED = "not installed"


@click.command()
@click.argument("model", required=False)
@json_option
def command(model: str | None, as_json: bool) -> None:
    """Show versions, the machine and the kernels in use, for example for a bug report.

    With MODEL (a packed file, a packaged name, a run's folder) also the size of its file and the memory that it takes
    here once it is loaded.

    \b
    Example:
      lapis info
      lapis info lapis_tiny_cifar10 --json
    """
    facts: dict[str, Any] = {**report()}
    if model is not None:
        facts["model"] = memory_of(model)
    if as_json:
        echo(*json.dumps(facts, indent=2).split("\n"))
        return
    if model is not None:
        facts |= _in_words(facts["model"])
    width = max(map(len, facts))
    for name, value in facts.items():
        echo(f"{name:<{width}}  {value}")


def report() -> dict[str, str]:
    """Name and value of everything that a bug report should say."""
    facts = {
        "lapis": lapis.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": processor(),
        "kernels": native.describe(),
        "gpu": _gpu(),
    }
    facts |= {package: _version(package) for package in PACKAGES}
    fault = torchvision_fault(facts["torch"], facts["torchvision"])
    if fault is not None:
        facts["torchvision"] += f": {fault}"
    return facts


def torchvision_fault(torch: str, torchvision: str) -> str | None:
    """What is wrong with this torchvision beside this torch, and the way out; None if nothing is, or one is missing.

    Builds for different devices (`2.13.0+cpu`, `2.13.0`) have different labels. Where these differ, an import decides;
    it takes seconds, and a process of its own, since a library of another build may crash.
    """
    if NOT_INSTALLED in (torch, torchvision) or _label(torch) == _label(torchvision):
        return None
    done = subprocess.run([sys.executable, "-c", "import torchvision"], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return (
        f"does not fit torch {torch} ({reason}). Only timm needs it, and then fails too. Install both from one index: "
        "pip install --force-reinstall torch torchvision, with the --index-url that torch came from"
    )


def memory_of(model: str) -> dict[str, Any]:
    """Bytes of a model's file, and of its weights, tables and working memory in a session of one thread."""
    path = models.open(model).path
    session = Session(model)
    used = session.memory()
    return {
        "name": model,
        "file_bytes": path.stat().st_size if path is not None and path.is_file() else None,
        "weights_bytes": used["weights"],
        "working_bytes": used["working"],
        "executor": session.executor,
    }


def _in_words(model: dict[str, Any]) -> dict[str, str]:
    size = model["file_bytes"]
    return {
        "model": model["name"],
        "file": "not a file" if size is None else f"{size / 1e6:.2f} MB",
        "memory": f"{model['weights_bytes'] / 1e6:.2f} MB of weights and tables, "
        f"{model['working_bytes'] / 1e6:.2f} MB to work in ({model['executor']}, 1 thread)",
    }


def _gpu() -> str:
    """The GPU and what runs on it, asked of torch in a process of its own: loading it takes seconds and memory."""
    if _version("torch") == NOT_INSTALLED:
        return "torch is not installed"
    done = subprocess.run([sys.executable, "-c", _ASK_GPU], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "torch could not be asked: " + (done.stderr.strip().splitlines() or ["no answer"])[-1]


_ASK_GPU = """
import torch
from lapis.ops.gpu import choice
if not torch.cuda.is_available():
    print("none")
else:
    device = torch.device("cuda", 0)
    kernels = choice.missing() or f"Triton kernels ({choice.card_of_device(device).words})"
    print(f"{torch.cuda.get_device_name(device)}, {choice.architecture(device)}: {kernels}")
"""


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return NOT_INSTALLED


def _label(version: str) -> str:
    """What follows the plus sign: `cpu` of 2.13.0+cpu."""
    return version.partition("+")[2]

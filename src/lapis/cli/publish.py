"""`lapis publish`: the folder of a hub repository, with figures that the commands on its card give."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from lapis import hub, models, pack
from lapis._util.files import PARTIAL, check_folder, new_folder, parse_json, write_text
from lapis._util.hints import install_command
from lapis.bridges.onnx_export import write_folder
from lapis.cli.completion import MODEL
from lapis.cli.options import PATH, data_option, images_option, json_option, show
from lapis.errors import EXIT_CHECK_FAILED, LapisError
from lapis.report.card import DATA, Facts, Measured, card

# The folder with the network in the form of transformers.
ONNX = "onnx"


@click.command()
@click.argument("run", type=MODEL)
@click.argument("folder", type=PATH)
@data_option("Test images; without them the card has no accuracy")
@click.option("--limit", type=click.IntRange(1), help="Images for the accuracy, evenly spread.")
@images_option(16)
@click.option("--name", help="Name of the network on its card; the folder's by default.")
@click.option("--dataset", help="Name of the test images on the card; that of --data by default.")
@click.option("--license", help="License of the weights, as the hub calls it: apache-2.0, mit, ...")
@json_option
def command(
    run: str,
    folder: Path,
    data: Path | None,
    limit: int | None,
    count: int,
    name: str | None,
    dataset: str | None,
    license: str | None,
    as_json: bool,
) -> None:
    """Write RUN to FOLDER as a hub repository: packed file, checkpoint, configuration and model card.

    RUN is a run's folder, a checkpoint, a packed file or a packaged name. FOLDER/onnx is a folder of transformers with
    the exact network as ONNX; it needs the package onnx. The commands evaluate, verify and energy run
    on the packed file; their JSON is kept in the folder, and the card gives each figure with its command. FOLDER must
    be new or empty. Nothing is uploaded.

    \b
    Example:
      lapis publish lapis_tiny.cifar10 lapis_tiny
    """
    check_folder(folder, "FOLDER", [data])
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise LapisError(f"{folder} is there already; name a new or empty folder")
    name = name or folder.resolve().name
    if data is not None and dataset is None:
        dataset = data.resolve().name
    with new_folder(folder.parent), TemporaryDirectory(prefix=PARTIAL, dir=folder.parent) as temporary:
        place = Path(temporary) / "folder"
        place.mkdir()
        _write_network(run, place)
        spread = [] if limit is None else ["--limit", str(limit)]
        evaluated = None if data is None else _run(place, "evaluate", spread, data)
        verified = _run(place, "verify", ["-n", str(count)], data)
        energy = _run(place, "energy", ["--compare"], data)
        sizes = _sizes(place)
        write_text(place / hub.CARD_FILE, card(Facts(name, license, dataset, sizes, evaluated, verified, energy)))
        # An empty folder gives way; one that was filled meanwhile does not.
        os.replace(place, folder)
    sizes = _sizes(folder)
    lines = [f"{folder / file}  {size:,} bytes" for file, size in sizes.items()]
    if f"{ONNX}/model.onnx" not in sizes:
        lines.append(f"{folder / ONNX} is left out; it needs the package onnx: {install_command('onnx')}")
    lines.append(
        f"read {folder / hub.CARD_FILE}, then upload the folder: hf upload ORG/NAME {shlex.quote(str(folder))}"
    )
    show({"folder": str(folder), "name": name, "files": sizes}, lines, as_json)


def _write_network(run: str, place: Path) -> None:
    opened = models.load(run)
    # Before the network in torch: this says why foreign weights cannot be published.
    network = opened.network
    model = opened.torch()
    model.about = {
        **{name: value for name, value in opened.metadata.items() if name != "config"},
        "preprocess": opened.preprocess.to_dict(),
        "class_names": list(opened.class_names),
    }
    model.save_pretrained(place)
    pack.save(place / hub.PACKED_FILE, network)
    if find_spec("onnx") is not None:
        write_folder(place / ONNX, network)


def _sizes(folder: Path) -> dict[str, int]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}


def _run(place: Path, verb: str, options: list[str], data: Path | None) -> Measured:
    """Run a command of Lapis on the packed file, as the card shows it, and keep its JSON beside the file."""
    words = [verb, hub.PACKED_FILE, *options]
    given = [] if data is None else ["--data", str(data.resolve())]
    shown = shlex.join(["lapis", *words, *(["--data", DATA] if given else []), "--json"])
    # Only the arguments decide what is measured: the variable would give images that the card does not mention.
    environment = {key: value for key, value in os.environ.items() if key != "LAPIS_DATA"}
    line = [sys.executable, "-m", "lapis.cli", *words, *given, "--json"]
    ran = subprocess.run(line, cwd=place, env=environment, capture_output=True)
    if ran.returncode == EXIT_CHECK_FAILED:
        raise LapisError(f"`{shown}` found executors that disagree; such a network is not published")
    if ran.returncode:
        lines = ran.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {ran.returncode}"]
        raise LapisError(f"`{shown}` failed: {lines[-1].removeprefix('lapis: error: ')}")
    output = ran.stdout.decode()
    if data is not None:
        # Where the images lie is no business of the readers.
        output = output.replace(json.dumps(str(data.resolve()))[1:-1], DATA)
    record = parse_json(output, f"the output of `{shown}`")
    write_text(place / f"{verb}.json", json.dumps(record) + "\n")
    return Measured(shown, record)

"""`lapis convert`: run a trained network as spikes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from lapis import models
from lapis._util.files import check_target, save_figure
from lapis._util.terminal import echo
from lapis.cli.completion import MODEL
from lapis.cli.options import data_option, images_option, json_option
from lapis.data.open import resized_batches, some_images
from lapis.deploy.neuron import follow_neuron
from lapis.deploy.simulate import Events
from lapis.deploy.simulate_native import fast_simulator
from lapis.energy.counts import OPERATORS
from lapis.errors import EXIT_OK
from lapis.report.charts import neuron_figure
from lapis.trace import POINTS, Tally

BATCH = 4


@click.command()
@click.argument("model", type=MODEL)
@data_option("Folder with test images; the packaged CIFAR-10 sample by default")
@images_option(2)
@click.option("--picture", type=click.Path(path_type=Path), help="Draw what one neuron does, to this PNG file.")
@click.option(
    "--neuron",
    type=(int, int, int),
    default=(0, 1, 0),
    show_default=True,
    metavar="BLOCK TOKEN CHANNEL",
    help="Which value neuron to draw, on the first image.",
)
@json_option
def command(
    model: str,
    data: Path | None,
    count: int,
    picture: Path | None,
    neuron: tuple[int, int, int],
    as_json: bool,
) -> int:
    """Convert MODEL to a spiking network, run it spike by spike on some images and print the counts.

    MODEL is a training checkpoint, a run's folder, a packed file or a packaged name. Spikes and synaptic operations are
    counted as they happen. `lapis verify` checks that the answers are right, `lapis pack` writes the network.

    \b
    Example:
      lapis convert runs/cifar10_tiny_w6 --data ~/data -n 4
    """
    check_target(picture, "--picture")
    network = models.open(model).network()
    simulator, events, tally = fast_simulator(network), Events(), Tally()
    answers: list[int] = []
    first = None
    started = time.perf_counter()
    for pixels, _ in resized_batches(some_images(data, count), network.preprocess, BATCH):
        first = pixels[0] if first is None else first
        logits, trace, batch_events = simulator.run(pixels)
        events.add(batch_events)
        tally.add(trace)
        answers += [int(answer) for answer in logits.argmax(axis=1)]
    seconds = (time.perf_counter() - started) / events.images
    record: dict[str, Any] = {
        "model": model,
        "exact": network.exact,
        "window": network.config.window,
        "images": events.images,
        "answers": [network.class_names[answer] if network.class_names else answer for answer in answers],
        "seconds_per_image": round(seconds, 3),
        "latency_steps": events.window_steps,
        "latency_steps_with_leak": events.latency,
        "spikes_per_image": {p: sum(events.spikes[b, p] for b in events.leak_steps) / events.images for p in POINTS},
        "activity": tally.activities(),
        "operations_per_image": {
            o: sum(events.operations[b, o] for b in events.leak_steps) / events.images for o in OPERATORS
        },
    }
    if picture is not None:
        _draw(network, first, neuron, picture)
        record["picture"] = str(picture)
    echo(*([json.dumps(record)] if as_json else _table(record)))
    return EXIT_OK


def _draw(network: Any, image: Any, neuron: tuple[int, int, int], path: Path) -> None:
    block, token, channel = neuron
    history = follow_neuron(network, image, block, token, channel)
    figure = neuron_figure(history, f"one value neuron: block {block}, token {token}, channel {channel}")
    save_figure(path, figure, metadata={"Software": None})


def _table(record: dict[str, Any]) -> list[str]:
    lines = [
        f"{record['model']}: {record['images']} images as spikes, {record['seconds_per_image']:.2f} s per image",
        f"answers  {', '.join(map(str, record['answers']))}",
        f"latency  {record['latency_steps']} steps of windows (T = {record['window']}), "
        f"{record['latency_steps_with_leak']} with every leak run step by step",
    ]
    lines += [
        f"  {point:13} {count:12,.0f} spikes per image, activity {record['activity'][point]:.3f}"
        for point, count in record["spikes_per_image"].items()
    ]
    lines += [
        f"  {operator:13} {count:12,.0f} synaptic operations per image"
        for operator, count in record["operations_per_image"].items()
    ]
    if "picture" in record:
        lines.append(f"picture  {record['picture']}")
    if not record["exact"]:
        lines.append("Its weights are floats: executors agree up to the order of their sums.")
    return lines

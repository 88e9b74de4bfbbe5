"""`lapis simulate`: run a network as spikes and count them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from lapis import models
from lapis._util.files import check_target, save_figure
from lapis.cli.completion import MODEL
from lapis.cli.options import PATH, data_option, force_option, images_option, json_option, show
from lapis.data.open import resized_batches, some_images
from lapis.deploy.neuron import follow_neuron
from lapis.deploy.simulate import Events
from lapis.deploy.simulate_native import fast_simulator
from lapis.energy.counts import OPERATORS
from lapis.errors import EXIT_OK
from lapis.report.charts import neuron_figure
from lapis.trace import POINTS, Tally

BATCH = 4
Neuron = tuple[int, int, int]


@click.command()
@click.argument("model", type=MODEL)
@data_option("Folder with test images; the packaged CIFAR-10 sample by default")
@images_option(2)
@click.option("--chart", type=PATH, help="Draw what one neuron does, to this PNG file.")
@click.option(
    "--neuron",
    type=(int, int, int),
    default=(0, 1, 0),
    show_default=True,
    metavar="BLOCK TOKEN CHANNEL",
    help="Which value neuron to draw.",
)
@force_option
@json_option
def command(
    model: str, data: Path | None, count: int, chart: Path | None, neuron: Neuron, force: bool, as_json: bool
) -> int:
    """Run MODEL as a spiking network, spike by spike, on some images and print the counts.

    MODEL is a packed file, a packaged name, a checkpoint or a run's folder. Spikes and synaptic operations are counted
    as they happen. `lapis verify` checks that the answers are those of the integer model.

    \b
    Example:
      lapis simulate lapis_tiny.cifar10 -n 1
    """
    opened = models.load(model)
    check_target(chart, "--chart", "PNG picture", [opened.path, data], force)
    network = opened.network
    simulator, events, tally = fast_simulator(network), Events(), Tally()
    answers: list[int] = []
    started, first = time.perf_counter(), None
    for pixels, _ in resized_batches(some_images(data, count), network.preprocess, BATCH):
        first = pixels[0] if first is None else first
        logits, trace, batch_events = simulator.run(pixels)
        events.add(batch_events)
        tally.add(trace)
        answers += [int(answer) for answer in logits.argmax(axis=1)]
    seconds = (time.perf_counter() - started) / events.images
    record: dict[str, Any] = {
        "model": model,
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
    if chart is not None and first is not None:
        block, token, channel = neuron
        history = follow_neuron(network, first, block, token, channel)
        figure = neuron_figure(history, f"one value neuron: block {block}, token {token}, channel {channel}")
        save_figure(chart, figure, metadata={"Software": None})
        record["chart"] = str(chart)
    show(record, _table(record), as_json)
    return EXIT_OK


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
    if "chart" in record:
        lines.append(f"chart    {record['chart']}")
    return lines

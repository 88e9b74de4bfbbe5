"""`lapis simulate`: run a network as spikes and count them."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from lapis import models
from lapis.cli.completion import MODEL
from lapis.cli.options import data_option, images_option, json_option, show
from lapis.data.open import resized_batches, some_images
from lapis.deploy import integer
from lapis.deploy.noise import Noise
from lapis.deploy.simulate import Events
from lapis.deploy.simulate_native import fast_simulator
from lapis.energy.counts import OPERATORS
from lapis.errors import EXIT_OK
from lapis.trace import POINTS, Point, Tally

BATCH = 4


@click.command()
@click.argument("model", type=MODEL)
@data_option("Folder with test images; the packaged CIFAR-10 sample by default")
@images_option(2)
@click.option("--jitter", type=click.IntRange(0), default=0, help="Spikes come early or late by up to this many steps.")
@click.option("--drop", type=click.FloatRange(0, 1), default=0.0, help="Spikes are lost with this probability.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of jitter and drop.")
@click.option("--point", "points", type=click.Choice(POINTS), multiple=True, help="Noise here only; repeat for more.")
@json_option
def command(
    model: str, data: Path | None, count: int, jitter: int, drop: float, seed: int, points: tuple[Point, ...],
    as_json: bool,
) -> int:  # fmt: skip
    """Run MODEL as a spiking network, spike by spike, on some images and print the counts.

    MODEL is a packed file, a packaged name, a checkpoint or a run's folder. Spikes and synaptic operations are counted
    as they happen. `lapis verify` checks that the answers are those of the integer model. With --jitter and --drop the
    spikes are noisy: one that would come before its window comes at its first step, one past its deadline is lost.

    \b
    Example:
      lapis simulate lapis_tiny.cifar10 -n 1 --jitter 1 --drop 0.01
    """
    network = models.load(model).network
    noise = Noise(jitter, drop, seed, points or POINTS) if jitter or drop else None
    simulator, events, tally = fast_simulator(network, noise=noise), Events(), Tally()
    answers: list[int] = []
    changed = 0
    started = time.perf_counter()
    for pixels, _ in resized_batches(some_images(data, count), network.preprocess, BATCH):
        logits, trace, batch_events = simulator.run(pixels)
        events.add(batch_events)
        tally.add(trace)
        found = logits.argmax(axis=1)
        answers += found.tolist()
        changed += 0 if noise is None else int((integer.run(network, pixels).argmax(axis=1) != found).sum())
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
    if noise is not None:
        record["noise"] = {**asdict(noise), "changed_answers": changed}
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
    if "noise" in record:
        noise = record["noise"]
        lines.append(
            f"noise    up to {noise['jitter']} steps, {100 * noise['drop']:g} % lost, seed {noise['seed']}, at "
            f"{', '.join(noise['points'])}: {noise['changed_answers']} of {record['images']} answers changed"
        )
    return lines

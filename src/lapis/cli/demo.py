"""`lapis demo`: the operator at work on real images."""

from __future__ import annotations

import json
from pathlib import Path

import click
import numpy as np

from lapis.codes import round_half_up
from lapis.data.slice import CIFAR10_CLASSES, load_slice
from lapis.ops.affinity.reference import affinity, affinity_by_leak
from lapis.ops.attention.reference import attention, attention_spikes, readout, weights
from lapis.ops.l1_distance.reference import l1_distance
from lapis.report.figures import attention_maps
from lapis.spikes import encode, first_spike

WINDOW, PATCH, IMAGES = 15, 4, 4


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("demo-report"), help="Folder for the picture.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(out: Path, as_json: bool) -> None:
    """Attention between the patches of real CIFAR-10 images, from the times of their first spikes.

    \b
    Example:
      lapis demo --out demo-report
    """
    images, labels = load_slice()
    images, labels = images[:IMAGES], labels[:IMAGES]
    tokens = patches(images)
    codes = round_half_up(tokens / 255 * WINDOW).astype(np.int64)[:, None]
    spikes = encode(codes, WINDOW)
    distance = l1_distance(first_spike(spikes), first_spike(spikes))
    tau = [float(distance.std())]
    mixed = attention(codes, codes, codes, tau, WINDOW)
    by_step = readout(attention_spikes(spikes, spikes, spikes, tau))
    rows = weights(codes, codes, tau, "pow2")
    facts = {
        "images": ", ".join(CIFAR10_CLASSES[label] for label in labels),
        "tokens an image": codes.shape[2],
        "window T": WINDOW,
        "spikes, at most one a channel": int(spikes.sum()),
        "channels": codes.size,
        "distance of latencies = of codes": bool((distance == l1_distance(codes, codes)).all()),
        "leak against exponential, largest difference": float(
            np.abs(affinity_by_leak(distance, tau[0]) - affinity(distance, tau[0])).max()
        ),
        "spike form against code form, largest difference": float(np.abs(by_step - mixed).max()),
        "row mass after the shift, least and most": [float(rows.sum(-1).min()), float(rows.sum(-1).max())],
        "multiplications between queries and keys": 0,
    }
    queries = [int(distance[image, 0].sum(-1).argmax()) for image in range(IMAGES)]
    out.mkdir(parents=True, exist_ok=True)
    picture = out / "operator.png"
    attention_maps(images, queries, distance[:, 0], rows[:, 0]).savefig(picture)
    if as_json:
        click.echo(json.dumps({**facts, "picture": str(picture)}, indent=2))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        click.echo(f"{name:<{width}}  {value}")
    click.echo(f"{'picture':<{width}}  {picture}")


def patches(images: np.ndarray) -> np.ndarray:
    """(n, S, S, 3) -> (n, tokens, PATCH * PATCH * 3)."""
    count, side = images.shape[:2]
    grid = side // PATCH
    tiles = images.reshape(count, grid, PATCH, grid, PATCH, 3).swapaxes(2, 3)
    return tiles.reshape(count, grid * grid, -1)

"""Accuracy under noisy spike times: `python research/spike_noise.py lapis_tiny.cifar10=DIR lapis_tiny.imagenet=DIR`.

Each word names a network (a file goes by its own name) and the folder of its test images. A spike comes early or late
by up to some steps, or is lost (`lapis.deploy.noise`), at every point. Networks run in torch with the same noise on
their codes, which is the same thing: the first image is compared with the spiking simulator, bit for bit, where that
runs the relation. So a plain quantized network, one with relation `dot`, takes the same noise and can stand beside the
others as one more word. Writes OUT.csv and OUT.png, of the networks named; a row that OUT.csv has already is not
computed again.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from lapis import models
from lapis._util.files import csv_text, save_figure, write_text
from lapis._util.metrics import interval95
from lapis.convert.torch_executor import AttentionExecutor, PointCodes, TorchExecutor
from lapis.data.images import Labels, match_classes, spread
from lapis.data.open import open_images, resized_batches
from lapis.deploy.network import Network
from lapis.deploy.noise import Noise
from lapis.deploy.simulate_native import fast_simulator
from lapis.preprocess import Pixels
from lapis.trace import Point

LEVELS = [(0, 0.0), *((jitter, 0.0) for jitter in (1, 2, 3)), *((0, drop) for drop in (0.02, 0.05, 0.1))]
COLUMNS = ("model", "relation", "jitter", "drop", "seed", "images", "correct", "top1", "low", "high")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#999999")
BATCH = 10
NO_SPIKES = ("dot",)


@dataclass(frozen=True)
class NoisyCoding:
    """The codes of a measuring point, then noise, image by image."""

    clean: PointCodes
    noise: Noise
    block: int
    point: Point

    @property
    def low(self) -> int:
        return self.clean.low

    def codes(self, whole: Tensor) -> Tensor:
        codes = self.clean.codes(whole)
        window, min_code = self.clean.high, self.clean.min_code
        noisy = [self.noise(one, window, min_code, self.block, self.point) for one in codes.to(torch.int8).numpy()]
        return torch.stack([torch.from_numpy(one) for one in noisy]).to(codes.dtype)


def noisy_executor(network: Network, noise: Noise) -> TorchExecutor:
    """The network in torch, with noise on its codes."""
    executor = TorchExecutor(network)
    half: Any
    for half in executor.halves:
        if isinstance(half, AttentionExecutor):
            ranges: Any = {point: NoisyCoding(c, noise, half.index, point) for point, c in half.ranges.items()}
            half.ranges = ranges
        else:
            half.input = NoisyCoding(half.input, noise, half.index, "mlp_in")
            half.hidden = NoisyCoding(half.hidden, noise, half.index, "mlp_hidden")
    return executor


def measure(name: str, folder: Path, count: int, seed: int, known: list[dict[str, str]]) -> Iterator[dict[str, str]]:
    """One row per level of noise."""
    opened = models.load(name)
    network = opened.network
    images, _ = match_classes(open_images(folder, "test"), opened.class_names, network.config.classes)
    images = spread(images, count)
    for jitter, drop in LEVELS:
        key = {
            "model": Path(name).name.removesuffix(".safetensors"),
            "jitter": str(jitter),
            "drop": str(drop),
            "seed": str(seed),
            "images": str(len(images)),
        }
        found = next((row for row in known if key.items() <= row.items()), None)
        if found is None:
            right = count_right(network, Noise(jitter, drop, seed), resized_batches(images, network.preprocess, BATCH))
            low, high = interval95(right, len(images))
            top1 = 100 * right / len(images)
            found = {"relation": network.config.relation, **key, "correct": str(right)}
            found |= {"top1": f"{top1:.2f}", "low": f"{low:.2f}", "high": f"{high:.2f}"}
        print(*(found[column] for column in COLUMNS), flush=True)
        yield found


def count_right(network: Network, noise: Noise, batches: Iterator[tuple[Pixels, Labels]]) -> int:
    executor, right = noisy_executor(network, noise), 0
    for number, (pixels, labels) in enumerate(batches):
        logits = executor(torch.from_numpy(pixels)).numpy()
        if number == 0 and network.config.relation not in NO_SPIKES:
            assert (logits[:1] == fast_simulator(network, noise=noise).run(pixels[:1]).logits).all()
        right += int((logits.argmax(axis=1) == labels).sum())
    return right


def draw(rows: list[dict[str, str]], path: Path) -> None:
    figure = Figure(figsize=(8, 3.4), layout="constrained", dpi=120)
    for place, (axis, label) in enumerate((("jitter", "jitter, steps either way"), ("drop", "spikes lost, %"))):
        axes = figure.add_subplot(1, 2, place + 1)
        other = "drop" if axis == "jitter" else "jitter"
        for colour, name in zip(COLOURS, dict.fromkeys(row["model"] for row in rows), strict=False):
            own = [row for row in rows if row["model"] == name and float(row[other]) == 0]
            x = [float(row[axis]) * (1 if axis == "jitter" else 100) for row in own]
            top, low, high = ([float(row[key]) for row in own] for key in ("top1", "low", "high"))
            axes.plot(
                x,
                top,
                "o--" if own[0]["relation"] == "dot" else "o-",
                color=colour,
                label=f"{name}, {own[0]['images']} images",
            )
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.set(xticks=x, xlabel=label, ylim=(0, 100))
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("top-1, % (band: 95 % interval)")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    save_figure(path, figure, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="+", metavar="MODEL=DIR")
    parser.add_argument("--images", type=int, default=200, help="test images, evenly spread")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("docs/images/spike_noise"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    table = asked.out.with_suffix(".csv")
    known = list(csv.DictReader(table.read_text().splitlines())) if table.is_file() else []
    rows: list[dict[str, str]] = []
    for word in asked.networks:
        name, _, folder = word.partition("=")
        for row in measure(name, Path(folder), asked.images, asked.seed, known):
            rows.append(row)
            write_text(table, csv_text([*rows, *(old for old in known if old not in rows)], COLUMNS))
    write_text(table, csv_text(rows, COLUMNS))
    draw(rows, asked.out.with_suffix(".png"))


if __name__ == "__main__":
    main()

"""Train a tiny network, convert it, check that spikes and engine agree with it, and pack it into one file.

Run it:  python examples/train_and_deploy.py --epochs 40 --out runs/example     (about a minute; needs torch)
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from lapis import Session, deploy, models, pack
from lapis.deploy.simulate import simulate
from lapis.train import load_recipe, train

# The smoke recipe as it is deployed: shifts for divisions, a spike-coded readout, 6-bit weights.
DEPLOYED = ["model.row_scale=pow2", "model.readout=spikes", "model.weight_bits=6"]
CHECKED = 4


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--epochs", type=float, default=40)
    options.add_argument("--out", type=Path, default=Path("runs/example"))
    given = options.parse_args()

    recipe = load_recipe("smoke").with_overrides([*DEPLOYED, f"optim.epochs={given.epochs}"])
    summary = train(recipe, None, given.out, quiet=True)
    print(f"trained   {summary['steps']} steps, top-1 {summary['top1']:.1f} % of {summary['images']} test images")

    network = models.load(given.out).network
    file = given.out / "packed.safetensors"
    print(f"packed    {file}, {pack.save(file, network):,} bytes")

    # Any bytes will do: the executors must agree on every image.
    size = network.config.image_size
    pixels = np.random.default_rng(0).integers(0, 256, (CHECKED, size, size, 3), dtype=np.uint8)
    expected = deploy.watch(network, pixels).trace
    simulated = simulate(network, pixels)
    for name, trace in {"spikes": simulated.trace, "engine": Session(file).watch(pixels).trace}.items():
        differing = sum(int((trace[point] != expected[point]).sum()) for point in expected)
        codes = sum(expected[point].size for point in expected)
        print(f"verified  {name}: {differing} of {codes:,} codes differ from integers")
        if differing:
            raise SystemExit(f"{name} and integers disagree")
    print(f"spikes    {sum(simulated.events.spikes.values()) / CHECKED:,.0f} per image")


if __name__ == "__main__":
    main()

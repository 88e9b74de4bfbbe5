"""Train a tiny network, convert it, prove that spikes and engine agree with it, and pack it into one file.

Run it:  python examples/train_and_deploy.py --epochs 40 --out runs/example     (about a minute; needs torch)
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lapis import Session, pack
from lapis.convert.from_model import from_model
from lapis.convert.simulate import Events
from lapis.convert.verify import Executor, spiking_executor, verify
from lapis.data.slice import CIFAR10_CLASSES, load_slice
from lapis.nn import load_network
from lapis.train import recipes
from lapis.train.distributed import join
from lapis.train.loop import train

# The smoke recipe as it is deployed: shifts for divisions, a spike-coded readout, 6-bit weights.
DEPLOYED = ["model.row_scale=pow2", "model.readout=spikes", "model.weight_bits=6"]
CHECKED = 4


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--epochs", type=float, default=40)
    options.add_argument("--out", type=Path, default=Path("runs/example"))
    given = options.parse_args()

    recipe = recipes.load("smoke").with_overrides([*DEPLOYED, f"optim.epochs={given.epochs}"])
    summary = train(recipe, None, given.out, join("cpu"), quiet=True)
    print(f"trained   {summary['steps']} steps, top-1 {summary['top1']:.1f} % of {summary['images']} test images")

    model, _ = load_network(given.out / "last.safetensors")
    network = from_model(model, recipe.preprocess, CIFAR10_CLASSES)
    file = given.out / "packed.safetensors"
    size = pack.save(file, network)
    print(f"packed    {file}, {size:,} bytes")

    session = Session(file)
    pixels = session.read(load_slice().images[-CHECKED:])
    events = Events(network.config.window)
    executors = {"spikes": spiking_executor(network, events), "engine": Executor(session.watch, "equal")}
    report = verify(network, executors, [(pixels, None)])
    for agreement in report.agreements:
        print(f"verified  {agreement.name}: {agreement.differing} of {agreement.codes:,} codes differ from integers")
    if not report.holds:
        raise SystemExit("a promise is broken")
    print(f"spikes    {sum(events.spikes.values()) / events.images:,.0f} for one image")


if __name__ == "__main__":
    main()

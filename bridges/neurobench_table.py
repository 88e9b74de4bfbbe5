"""Print NeuroBench's table for a deployed network, on a folder with one folder of images per class.

    python bridges/neurobench_table.py pictures/val

It needs `pip install neurobench`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from neurobench.benchmarks import Benchmark
from neurobench.metrics.static import ConnectionSparsity, ParameterCount
from neurobench.metrics.workload import ClassificationAccuracy
from neurobench_model import FirstSpikeOperations, FirstSpikeSparsity, LapisModel, PackedFootprint
from torch.utils.data import DataLoader, TensorDataset

from lapis import Session, models


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "folder", type=Path, help="images as FOLDER/CLASS/IMAGE, classes named as the network names them"
    )
    parser.add_argument("--model", default="lapis_tiny.cifar10", help="a packaged name, a packed file, a run's folder")
    options = parser.parse_args()

    network = models.load(options.model).network
    files = sorted(path for path in options.folder.glob("*/*") if path.is_file())
    images = torch.from_numpy(Session(network).read(files))
    labels = torch.tensor([network.class_names.index(path.parent.name) for path in files])

    static = [PackedFootprint, ParameterCount, ConnectionSparsity]
    workload = [ClassificationAccuracy, FirstSpikeSparsity, FirstSpikeOperations]
    loader = DataLoader(TensorDataset(images, labels), batch_size=4)
    results = Benchmark(LapisModel(network), loader, [], [], [static, workload]).run(quiet=True)
    for name, value in results.items():
        print(f"{name:24} {value}")


if __name__ == "__main__":
    main()

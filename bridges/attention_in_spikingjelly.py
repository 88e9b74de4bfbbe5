"""Lapis attention in a network of SpikingJelly's layers: it learns to tell the direction of a bar.

Run it:  python bridges/attention_in_spikingjelly.py

It needs `pip install spikingjelly` and takes seconds.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from first_spike import FirstSpikeNode, integrate
from spiking_attention import SpikingAttention, counting_rules
from spikingjelly.activation_based import encoding, functional, layer, op_counter
from torch import Tensor, nn

from lapis.nn import LapisAttention, calibrate

WINDOW, SIDE, PATCH, WIDTH = 7, 12, 3, 24
STEPS, BATCH = 60, 32


class Network(nn.Module):
    """Patches as first spikes, one block of attention and MLP, the mean of the tokens, two classes.

    What layers send is a current at every step, (T, batch, tokens, width). Their sum is the residual stream: neurons
    integrate sums of currents to sums of voltages.
    """

    def __init__(self) -> None:
        super().__init__()
        self.encode = encoding.LatencyEncoder(WINDOW, step_mode="m")
        self.embed = layer.Linear(PATCH * PATCH, WIDTH, bias=False)
        self.before_attention = FirstSpikeNode(WINDOW, WIDTH)
        self.attention = SpikingAttention(
            LapisAttention(WIDTH, heads=3, window=WINDOW, coding="unsigned", readout="spikes", row_scale="pow2")
        )
        self.before_mlp = FirstSpikeNode(WINDOW, WIDTH)
        self.mlp = nn.Sequential(
            layer.Linear(WIDTH, 2 * WIDTH, bias=False),
            FirstSpikeNode(WINDOW, 2 * WIDTH),
            layer.Linear(2 * WIDTH, WIDTH, bias=False),
        )
        self.head = nn.Linear(WIDTH, 2)
        functional.set_step_mode(self, "m")

    def forward(self, images: Tensor) -> Tensor:
        patches = F.unfold(images, PATCH, stride=PATCH).transpose(1, 2)
        stream = self.embed(self.encode(patches.expand(WINDOW, *patches.shape)))
        stream = stream + self.attention(self.before_attention(stream))
        stream = stream + self.mlp(self.before_mlp(stream))
        logits: Tensor = self.head(integrate(stream).mean(dim=1) / WINDOW)
        return logits


def bars(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Noisy images (count, 1, S, S) in 0..1 of one bar: class 0 lies, class 1 stands."""
    images = 0.3 * torch.rand(count, 1, SIDE, SIDE, generator=generator)
    labels = torch.randint(2, (count,), generator=generator)
    places = torch.randint(SIDE, (count,), generator=generator)
    for image, label, place in zip(images, labels, places, strict=True):
        (image[0] if label == 0 else image[0].T)[place] += 0.7
    return images, labels


def main() -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    network = Network()
    calibrate(
        network, bars(BATCH, generator)[0], missing_only=True
    )  # the layer's steps; neurons take theirs from their first batch
    functional.reset_net(network)
    optimizer = torch.optim.AdamW(network.parameters(), lr=5e-3)
    losses = []
    for _ in range(STEPS):
        images, labels = bars(BATCH, generator)
        loss = F.cross_entropy(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        functional.reset_net(network)
        losses.append(loss.item())
    print(f"loss {losses[0]:.3f} at first, loss {losses[-1]:.3f} after {STEPS} steps")

    images, labels = bars(200, generator)
    counter = op_counter.SynOpCounter(counting_rules())
    with torch.no_grad(), op_counter.DispatchCounterMode([counter]):
        right = int((network(images).argmax(dim=1) == labels).sum())
    print(f"{right} of {len(labels)} new images are right")
    print(f"{counter.get_total() / len(labels):,.0f} synaptic operations per image, of which")
    for operation, count in counter.get_counts()["Global"].items():
        print(f"  {operation!s:28} {count / len(labels):10,.0f}")


if __name__ == "__main__":
    main()

"""Lapis attention inside a timm model: the shape of DINOv2 with registers, small enough for a laptop.

Run it:  python examples/attention_in_timm.py
"""

from __future__ import annotations

import torch

from lapis.nn import LapisAttention, calibrate, import_timm, is_calibrated, replace_attention

STEPS = 10


def main() -> None:
    torch.manual_seed(0)
    timm = import_timm()  # `import timm`, also where torchvision does not fit torch
    # timm's names and options; weights of a real DINOv2 would come with pretrained=True and the sizes left alone.
    model = timm.create_model(
        "vit_small_patch14_reg4_dinov2", img_size=56, embed_dim=48, depth=2, num_heads=4, num_classes=3
    )
    count = replace_attention(model, window=15)
    print(f"{count} attention layers replaced, 4 heads, {model.num_reg_tokens} registers")

    images, labels = torch.rand(6, 3, 56, 56), torch.tensor([0, 1, 2, 0, 1, 2])
    calibrate(model, [images])
    assert is_calibrated(model)

    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    for _ in range(STEPS):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"loss {losses[0]:.3f} at first, loss {losses[-1]:.3f} after {STEPS} steps")

    layer = next(part for part in model.modules() if isinstance(part, LapisAttention))
    _, trace = layer.watch(torch.randn(1, 21, 48))
    for point in ("attention_in", "q", "k", "v"):
        codes = trace[0, point]
        print(f"{point}: codes {codes.min()}..{codes.max()}, {100 * (codes != 0).mean():.0f} % of values spike")


if __name__ == "__main__":
    main()

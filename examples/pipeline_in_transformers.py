"""Classify images with a published network in Hugging Face transformers; Lapis itself is not needed.

    lapis publish lapis_tiny.cifar10 my_network
    python examples/pipeline_in_transformers.py my_network/onnx photo.jpg

ONNX Runtime computes: the logits are those of the engine, bit for bit, where the resized image is. Needs transformers,
torch and onnxruntime. ORTModelForImageClassification of optimum-onnx opens the same folder beside transformers 4.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import onnxruntime
import torch
from torch import Tensor
from transformers import AutoConfig, AutoImageProcessor, PreTrainedModel, pipeline
from transformers.modeling_outputs import ImageClassifierOutput


class ViTForImageClassification(PreTrainedModel):  # type: ignore[misc, unused-ignore]
    """The network of a folder, with the name by which the pipeline knows a classifier."""

    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self, folder: Path) -> None:
        super().__init__(AutoConfig.from_pretrained(folder))
        self.session = onnxruntime.InferenceSession(folder / "model.onnx")

    def forward(self, pixel_values: Tensor) -> ImageClassifierOutput:
        """(B, 3, S, S) to logits (B, classes)."""
        (logits,) = self.session.run(["logits"], {"pixel_values": pixel_values.numpy()})
        return ImageClassifierOutput(logits=torch.from_numpy(logits))


def main() -> None:
    parser = argparse.ArgumentParser(description="Classify images in the pipeline of transformers.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("images", nargs="+")
    arguments = parser.parse_args()
    # Pillow resizes as Lapis does; torchvision's bytes differ a little.
    processor = AutoImageProcessor.from_pretrained(arguments.folder, backend="pil")
    classify = pipeline(
        "image-classification", model=ViTForImageClassification(arguments.folder), image_processor=processor
    )
    for image in arguments.images:
        best = classify(image, top_k=3)
        print(image, *(f"{answer['label']} {100 * answer['score']:.1f} %" for answer in best), sep="  ")


if __name__ == "__main__":
    main()

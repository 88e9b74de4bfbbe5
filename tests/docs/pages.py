"""The pages whose blocks are run, and where one differs from the usual (`tests/docs/blocks.py`)."""

from __future__ import annotations

from tests.docs.blocks import Rules

INSTALLS = "the tests run in such an environment"
NO_GPU = "needs a GPU and hours"
SHORT = "--quiet --set optim.epochs=0.2 --set optim.batch=8 --set data.calibrate=2"

PAGES = {
    "README.md": Rules(
        given=("photo.jpg", "photos"),
        needs=("torch", "timm"),
        add={"finetune": "--quiet --epochs 0.5 --set model.image_size=32"},
        not_run={"pip install lapis-snn": INSTALLS},
    ),
    "docs/tutorial.md": Rules(
        given=("photo.png",),
        needs=("torch",),
        add={"train": "--quiet --set optim.epochs=0.5"},
        not_run={"python3 -m venv .venv": INSTALLS},
    ),
    "docs/spiking.md": Rules(given=("photo.png",)),
    "docs/paper.md": Rules(given=("research",)),
    "docs/energy.md": Rules(given=("research",)),
    "docs/same-bits.md": Rules(not_run={"lapis evaluate lapis_tiny.cifar10": "needs CIFAR-10, all of it"}),
    "docs/training.md": Rules(
        not_run={
            "lapis train smoke": "the tutorial runs it; the others take hours",
            "lapis train cifar10_tiny_half --data DIR --teacher": "needs data and a teacher",
        },
    ),
    "docs/gpu.md": Rules(
        needs=("torch",),
        add={"train": "--quiet"},
        not_run={
            "pip install torch": INSTALLS,
            "lapis train cifar10_teacher": NO_GPU,
            "torchrun --standalone": NO_GPU,
            "torchrun --nnodes 2": NO_GPU,
        },
    ),
    "docs/howto/backbone.md": Rules(
        given=("deit_tiny.safetensors", "imagenet", "cifar"),
        needs=("torch",),
        add={
            "train": "--quiet --set optim.epochs=0.02 --set optim.batch=8 --set data.calibrate=2 "
            "--set data.validate=10",
        },
    ),
    "docs/howto/deploy.md": Rules(
        given=("runs/mine", "photo.jpg", "other.png", "pictures", "program.c", "program.cpp"),
        needs=("torch",),
        not_run={"scp dist": "needs a Raspberry Pi"},
    ),
    "docs/howto/distill.md": Rules(
        not_run={
            "lapis distill": "downloads weights; tests/cli/test_distill.py runs it",
            "from lapis.train import distill": "downloads weights; tests/train/test_distillation.py runs it",
            "lapis verify student": "needs the student",
        }
    ),
    "docs/howto/explain.md": Rules(),
    "docs/howto/integrations.md": Rules(
        given=("photo.jpg",),
        needs=("torch", "timm", "onnx", "onnxruntime"),
        only_with={"from spikingjelly": "spikingjelly"},
        not_run={
            "lapis predict hf:": "needs the hub; tests/test_hub.py has its own",
            "python examples/predict_with_ray.py": "tests/test_ray.py runs it",
        },
    ),
    "docs/howto/own-images.md": Rules(
        given=("pets", "deit_tiny.safetensors", "pictures"),
        needs=("torch",),
        add={"finetune": "--quiet --epochs 0.5 --set model.image_size=32", "train": SHORT},
    ),
    "docs/howto/transformers.md": Rules(
        given=("photo.jpg",),
        needs=("torch", "timm", "transformers"),
        not_run={"from transformers import AutoModel": "downloads a network"},
    ),
    "docs/howto/relation.md": Rules(
        needs=("torch",), not_run={"lapis train smoke": "needs an installed package with the entry point"}
    ),
}

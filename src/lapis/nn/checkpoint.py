"""Save and load a network: its tensors and its configuration, in one safetensors file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from lapis._util.files import write_atomically
from lapis._util.run_layout import CHECKPOINT_KEY, checkpoint_metadata
from lapis.config import LapisConfig
from lapis.deploy.schema import ENTRIES_PER_BYTE, FREE_ENTRIES
from lapis.errors import LapisError

if TYPE_CHECKING:
    from lapis.nn.model import LapisViT

Module = TypeVar("Module", bound=nn.Module)


def save_network(path: str | Path, model: LapisViT, extra: dict[str, Any] | None = None) -> None:
    """Write `model` and the metadata in `extra`, atomically: the file is complete or does not exist."""
    _ = model.classifier  # a file of a network without one could not be loaded again
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    metadata = {"config": model.config.to_dict(), **(extra or {})}
    write_atomically(path, save(tensors, metadata={CHECKPOINT_KEY: json.dumps(metadata, sort_keys=True)}))


def read_network(path: Path, build: Callable[[LapisConfig], Module]) -> tuple[Module, dict[str, Any]]:
    """The network of a file that `save_network` wrote, in evaluation mode, and the metadata of `extra`."""
    tensors, metadata = read_tensors(path)
    if CHECKPOINT_KEY not in metadata:
        raise LapisError(f"{path} holds no Lapis configuration; import foreign weights with lapis.nn.load_backbone")
    extra = checkpoint_metadata(path, metadata[CHECKPOINT_KEY])
    config = LapisConfig.from_dict(extra.pop("config"))
    _check_sizes(path, tensors, config)
    model = build(config)
    expected = model.state_dict()
    check_tensors(path, tensors, {name: tuple(tensor.shape) for name, tensor in expected.items()})
    model.load_state_dict(tensors)
    return model.eval(), extra


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors of a safetensors or .pth file, and the metadata where there is any. Nothing is executed."""
    if not path.is_file():
        raise LapisError(f"no such file: {path}")
    if path.suffix == ".safetensors":
        try:
            with safe_open(path, framework="pt") as file:
                return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
        except SafetensorError as error:
            raise LapisError(f"{path} is not a readable safetensors file: {error}") from error
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a damaged or unsafe pickle
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise LapisError(f"{path} cannot be read as weights only: {first}") from error
    for wrapper in ("model", "state_dict", "model_ema"):
        if isinstance(loaded, dict) and isinstance(loaded.get(wrapper), dict):
            loaded = loaded[wrapper]
    if not isinstance(loaded, dict) or not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in loaded.items()):
        raise LapisError(
            f"{path} holds no table of tensors; expected a state dict, or one under 'model' or 'state_dict'"
        )
    return loaded, {}


def check_tensors(source: object, tensors: dict[str, Tensor], shapes: dict[str, tuple[int, ...]]) -> None:
    """Check that all expected tensors are there with their shapes, and no others."""
    missing, unknown = sorted(shapes.keys() - tensors.keys()), sorted(tensors.keys() - shapes.keys())
    if missing or unknown:
        parts = [
            f"{what} {', '.join(names[:6])}" + f" and {len(names) - 6} more" * (len(names) > 6)
            for what, names in (("misses", missing), ("has unknown", unknown))
            if names
        ]
        raise LapisError(f"{source} does not fit this network: it {' and '.join(parts)}")
    for name, shape in shapes.items():
        if tuple(tensors[name].shape) != shape:
            raise LapisError(f"{source}: {name} has shape {tuple(tensors[name].shape)}, this network needs {shape}")
        if tensors[name].is_floating_point() and not bool(torch.isfinite(tensors[name]).all()):
            raise LapisError(f"{source}: {name} holds NaN or infinity")


def _check_sizes(path: Path, tensors: dict[str, Tensor], config: LapisConfig) -> None:
    """Refuse a configuration that is not that of the tensors, before a network of its sizes is built."""
    blocks = {name.split(".")[1] for name in tensors if name.startswith("blocks.")}
    if len(blocks) != config.depth:
        raise LapisError(f"{path} holds {len(blocks)} blocks, and its configuration says depth={config.depth}")
    side = config.patch_size
    shapes: dict[str, tuple[int, ...]] = {
        "patch_embed.proj.weight": (config.width, config.image_channels, side, side),
        "blocks.0.mlp.fc1.weight": (config.hidden, config.width),
        "head.weight": (config.classes, config.width),
    }
    if not config.relative_position:
        shapes["pos_embed"] = (1, config.tokens, config.width)
    check_tensors(path, {name: tensors[name] for name in shapes if name in tensors}, shapes)
    pairs = config.depth * config.tokens**2
    allowed = FREE_ENTRIES + ENTRIES_PER_BYTE * sum(tensor.nbytes for tensor in tensors.values())
    if config.relative_position and pairs > allowed:
        raise LapisError(
            f"{path}: {pairs} pairs of tokens in {config.depth} blocks are out of proportion to the file; "
            f"it may have at most {allowed}"
        )

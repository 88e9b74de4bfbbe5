"""LapisViT: a vision transformer in which each activation between layers is at most one spike."""

from __future__ import annotations

import dataclasses
import json
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from typing_extensions import Self

from lapis import hub
from lapis._util.files import new_folder, write_text
from lapis.config import NORM_EPS, LapisConfig, MinCodeByPoint
from lapis.errors import LapisError
from lapis.nn.block import TransformerBlock
from lapis.nn.checkpoint import read_network, save_network
from lapis.nn.quantizer import ActivationQuantizer
from lapis.preprocess import Preprocess
from lapis.trace import Trace, Watched

# The timm model that takes every field of a configuration; see `lapis.nn.timm_models`.
ARCHITECTURE = "lapis_vit"
# What timm calls some fields of a configuration.
TIMM_NAMES = {"classes": "num_classes", "image_size": "img_size", "image_channels": "in_chans"}
# A backward pass on a GPU runs in a thread of its own.
_thread = threading.local()


def recomputing() -> bool:
    """Whether this thread computes a block for the second time."""
    return getattr(_thread, "again", False)


def recomputed(block: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """block(x), of which only x is kept for the backward pass: the same gradients, for a third more work.

    What a block does besides computing, such as telling an observer what it saw, happens twice; see `recomputing`.
    """
    result: Tensor = checkpoint(block, x, use_reentrant=False, context_fn=lambda: (nullcontext(), _second_time()))
    return result


@contextmanager
def _second_time() -> Iterator[None]:
    _thread.again = True
    try:
        yield
    finally:
        _thread.again = False


class Tapped(NamedTuple):
    """Logits, and the tokens after each tapped block."""

    logits: Tensor
    features: list[Tensor]


class PatchEmbed(nn.Module):
    """Non-overlapping patches to tokens, a strided convolution in FP32."""

    def __init__(self, config: LapisConfig) -> None:
        super().__init__()
        self.proj = nn.Conv2d(config.image_channels, config.width, config.patch_size, config.patch_size)

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, S, S) -> (B, grid**2, D)."""
        if images.device.type != "cpu":
            # With channels last, tokens come out in order: no copy follows.
            images = images.contiguous(memory_format=torch.channels_last)
        patches: Tensor = self.proj(images)
        return patches.flatten(2).transpose(1, 2)


class LapisViT(nn.Module):
    """images (B, 3, S, S)  ->  logits (B, classes).

    `forward` classifies; `watch` also returns the trace of all measuring points; `tap` also returns the tokens after
    chosen blocks, for distillation. `drop_path_rate` is the share of residual additions that training skips in the last
    block (stochastic depth); it rises linearly from 0 in the first. With `recompute`, blocks are
    computed again in the backward pass, which saves memory. The methods below `forward_features` have the names and
    meanings that timm's models give them. `about` is what its file records beside the configuration, such as
    preprocessing and class names. A folder of `save_pretrained` holds `model.safetensors`, a checkpoint as training
    writes it, and `config.json`, which timm reads.
    """

    def __init__(self, config: LapisConfig, drop_path_rate: float = 0.0) -> None:
        super().__init__()
        self.config = config
        self.about: dict[str, Any] = {}
        self.recompute = False
        self.patch_embed = PatchEmbed(config)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.width))
        # BEiT's position signal is relative and lives in its attention.
        self.pos_embed = None if config.relative_position else nn.Parameter(torch.zeros(1, config.tokens, config.width))
        # A ModuleList makes the blocks known to torch, but its type forgets what it holds.
        listed = nn.ModuleList(TransformerBlock(config, index) for index in range(config.depth))
        self.blocks = cast(Sequence[TransformerBlock], listed)
        self.norm = nn.LayerNorm(config.width, eps=NORM_EPS)
        self.head: nn.Linear | nn.Identity = nn.Linear(config.width, config.classes)
        self._initialise()
        self.set_drop_path_rate(drop_path_rate)

    def forward(self, images: Tensor) -> Tensor:
        return self._run(images, None, ()).logits

    def quantizers(self) -> Iterator[tuple[int, str, ActivationQuantizer]]:
        """(block, measuring point, quantizer) of all that spike; q and k share the one called qk."""
        for index, block in enumerate(self.blocks):
            named = {
                "attention_in": block.attn.input, "qk": block.attn.qk, "v": block.attn.v,
                "readout": block.attn.readout, "mlp_in": block.mlp.input, "mlp_hidden": block.mlp.hidden,
            }  # fmt: skip
            for point, quantizer in named.items():
                if quantizer is not None:
                    yield index, point, quantizer

    def set_min_code(self, min_code: MinCodeByPoint) -> None:
        """Change the minimum code that fires at every point; the configuration changes with it."""
        self.config = self.config.replace(min_code=min_code)
        for block, point, quantizer in self.quantizers():
            quantizer.min_code = self.config.min_code_of(point, block)

    def set_drop_path_rate(self, rate: float) -> None:
        """Change the share of residual additions that training skips: 0 in the first block, `rate` in the last."""
        if isinstance(rate, bool) or not 0 <= rate < 1:
            raise LapisError(f"drop_path_rate={rate!r} must be a share from 0 to below 1")
        for index, block in enumerate(self.blocks):
            block.drop_path = rate * index / max(1, self.config.depth - 1)

    @torch.no_grad()
    def watch(self, images: Tensor) -> Watched:
        """Logits and the integer codes at every measuring point, in FP32 and without gradients."""
        trace = Trace(self.config.window)
        with torch.autocast(images.device.type, enabled=False):
            return Watched(self._run(images.float(), trace, ()).logits, trace)

    def tap(self, images: Tensor, blocks: Sequence[int]) -> Tapped:
        """Logits and the tokens (B, N, D) after each of `blocks`, in the order given."""
        unknown = [block for block in blocks if not 0 <= block < self.config.depth]
        if unknown:
            raise LapisError(f"block {unknown[0]} does not exist; this network has blocks 0..{self.config.depth - 1}")
        return self._run(images, None, blocks)

    def forward_features(self, images: Tensor) -> Tensor:
        """The tokens (B, N, D) behind the last norm; where patches are averaged, the norm comes after the average."""
        x, _ = self._tokens(images, None, ())
        tokens: Tensor = x if self.config.mean_pooling else self.norm(x)
        return tokens

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Logits (B, classes) of what `forward_features` gave, or the features (B, D) before the classifier."""
        pooled = self.pool(x) if self.config.mean_pooling else x[:, 0]
        out: Tensor = pooled if pre_logits else self.head(pooled)
        return out

    def get_classifier(self) -> nn.Linear | nn.Identity:
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A new classifier with random weights; with 0 classes none, and the network gives its features (B, D)."""
        pool = self.default_cfg["global_pool"]
        if global_pool not in (None, pool):
            raise LapisError(f"global_pool={global_pool!r} is not what style={self.config.style!r} does; use {pool!r}")
        if num_classes == 0:
            self.head = nn.Identity()
            return
        self.config = self.config.replace(classes=num_classes)
        self.head = nn.Linear(self.config.width, num_classes, device=self.norm.weight.device)
        _initialise_linear(self.head)

    @property
    def classifier(self) -> nn.Linear:
        """The last layer; an error where it was taken away."""
        if not isinstance(self.head, nn.Linear):
            raise LapisError("this network has no classifier; give it one with reset_classifier(num_classes)")
        return self.head

    @property
    def num_classes(self) -> int:
        return self.config.classes if isinstance(self.head, nn.Linear) else 0

    @property
    def num_features(self) -> int:
        """D: the width of a token, and of the features before the classifier."""
        return self.config.width

    @property
    def default_cfg(self) -> dict[str, Any]:
        """What timm's data pipeline asks of a model."""
        size, channels = self.config.image_size, self.config.image_channels
        preprocess = self.preprocess
        # There is no usual mean and deviation for images of other channels than red, green and blue.
        colours = {"mean": preprocess.mean, "std": preprocess.std} if channels == len(preprocess.mean) else {}
        return {
            "input_size": (channels, size, size),
            "fixed_input_size": True,
            "interpolation": preprocess.interpolation,
            "crop_pct": preprocess.crop,
            **colours,
            "num_classes": self.num_classes,
            "global_pool": "avg" if self.config.mean_pooling else "token",
            "first_conv": "patch_embed.proj",
            "classifier": "head",
        }

    @property
    def pretrained_cfg(self) -> dict[str, Any]:
        return self.default_cfg

    def no_weight_decay(self) -> set[str]:
        """Parameters that are no weights: tokens, positions, quantizer steps and what relations learn."""
        return {name for name, _ in self.named_parameters() if not name.endswith((".weight", ".bias"))}

    @classmethod
    def from_pretrained(cls, source: str | Path) -> Self:
        """The network that `save_pretrained` wrote to a folder, or that `ORG/NAME` holds on the hub; to evaluate."""
        folder = Path(source)
        if folder.is_dir():
            path = folder / hub.CHECKPOINT_FILE
            if not path.is_file():
                raise LapisError(f"{folder} holds no {hub.CHECKPOINT_FILE}; name a folder that save_pretrained wrote")
        else:
            name = hub.parse(str(source))
            revision = "" if name.revision is None else f"@{name.revision}"
            path = hub.fetch(f"{hub.PREFIX}{name.repository}/{name.file or hub.CHECKPOINT_FILE}{revision}")
        model, about = read_network(path, cls)
        model.about = about
        return model

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the network to a folder, with the configuration that timm's loaders read."""
        folder = Path(folder)
        with new_folder(folder):
            save_network(folder / hub.CHECKPOINT_FILE, self, self.about)
            write_text(folder / hub.CONFIG_FILE, json.dumps(timm_config(self), indent=1) + "\n")

    def push_to_hub(self, repository: str, private: bool | None = None, token: str | None = None) -> str:
        """Upload what `save_pretrained` writes to `ORG/NAME` on the hub, and return the repository's address."""
        hub.require(repository)
        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            return hub.upload(Path(folder), repository, private, token, "Upload a Lapis network")

    @property
    def preprocess(self) -> Preprocess:
        """How images are prepared: as its file says, else by ImageNet's rule."""
        known = self.about.get("preprocess")
        rule = Preprocess(self.config.image_size) if known is None else Preprocess.from_dict(known)
        # A network that was built at another size keeps the rest of the rule.
        return dataclasses.replace(rule, size=self.config.image_size)

    def _run(self, images: Tensor, trace: Trace | None, taps: Sequence[int]) -> Tapped:
        x, features = self._tokens(images, trace, taps)
        return Tapped(self.head(self.pool(x)), features)

    def _tokens(self, images: Tensor, trace: Trace | None, taps: Sequence[int]) -> tuple[Tensor, list[Tensor]]:
        """The tokens (B, N, D) after the last block, and after each of `taps`."""
        x = self.embed(images)
        features: dict[int, Tensor] = {}
        for index, block in enumerate(self.blocks):
            x = self.run_block(block, x) if trace is None else block(x, trace)
            if index in taps:
                features[index] = x
        return x, [features[index] for index in taps]

    def embed(self, images: Tensor) -> Tensor:
        """The tokens (B, N, D) before the first block: class token, patches, positions."""
        self._check(images)
        x = torch.cat([self.cls_token.expand(images.shape[0], -1, -1), self.patch_embed(images)], dim=1)
        return x if self.pos_embed is None else x + self.pos_embed

    def run_block(self, block: TransformerBlock, x: Tensor) -> Tensor:
        """One block as the network runs it: computed again in the backward pass where that is asked."""
        out: Tensor = recomputed(block, x) if self.recompute and torch.is_grad_enabled() else block(x)
        return out

    def pool(self, x: Tensor) -> Tensor:
        """BEiT: the mean of the patch tokens, then the norm. DeiT and ViT: the norm's class token."""
        pooled: Tensor = self.norm(x[:, 1:].mean(dim=1)) if self.config.mean_pooling else self.norm(x[:, 0])
        return pooled

    def _check(self, images: Tensor) -> None:
        size, channels = self.config.image_size, self.config.image_channels
        if images.ndim != 4 or tuple(images.shape[1:]) != (channels, size, size):
            raise LapisError(
                f"images of shape {tuple(images.shape)} were given; "
                f"this network takes (batch, {channels}, {size}, {size})"
            )

    def _initialise(self) -> None:
        if self.cls_token.is_meta:  # shapes without numbers
            return
        for module in self.modules():
            if isinstance(module, nn.Linear):
                _initialise_linear(module)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        if self.pos_embed is not None:
            nn.init.trunc_normal_(self.pos_embed, std=0.02)


def timm_config(model: LapisViT) -> dict[str, Any]:
    """What timm, and by it transformers, needs to build the network and to prepare images for it."""
    arguments = {TIMM_NAMES.get(name, name): value for name, value in model.config.to_dict().items()}
    # Both pass it by themselves.
    del arguments["num_classes"]
    named = {"label_names": model.about["class_names"]} if model.about.get("class_names") else {}
    return {
        "architecture": ARCHITECTURE,
        "num_classes": model.num_classes,
        "num_features": model.num_features,
        **named,
        "model_args": arguments,
        "pretrained_cfg": model.default_cfg,
    }


def load_network(path: str | Path) -> LapisViT:
    """The network of a file that `save_network` wrote, in evaluation mode."""
    return read_network(Path(path), LapisViT)[0]


def _initialise_linear(layer: nn.Linear) -> None:
    nn.init.trunc_normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)

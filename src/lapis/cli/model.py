"""What the deployment commands share: a model by path or name, in its deployed form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lapis import assets
from lapis.convert.network import DEFAULT_FRACTION_BITS, Network
from lapis.pack import is_packed, load


@dataclass(frozen=True)
class Deployed:
    """A network ready to run, where it came from, and the trained network where its file holds one."""

    path: Path
    network: Network
    trained: Any | None


def open_deployed(source: str, fraction_bits: int = DEFAULT_FRACTION_BITS) -> Deployed:
    """A packed file as it is; a training checkpoint, or a run's folder, converted."""
    path = Path(source)
    if path.is_dir():
        from lapis.train.weights import find_weights

        path = find_weights(source) or path
    else:
        path = assets.resolve(source)
    if is_packed(path):
        return Deployed(path, load(path), None)
    from lapis.convert.trained import convert_checkpoint

    network, trained = convert_checkpoint(path, fraction_bits)
    return Deployed(path, network, trained)

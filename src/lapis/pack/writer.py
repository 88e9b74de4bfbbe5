"""Write a deployed network as bytes. The same network always gives the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as to_safetensors

from lapis._util.files import write_atomically
from lapis.deploy.network import Network, array_of
from lapis.ops.pack6 import pack6
from lapis.pack.format import (
    ACTIVITY,
    ACTIVITY_DIGITS,
    METADATA_KEY,
    TRAINED_SLICE,
    VERSION,
    check_limits,
    entries,
    in_file,
    is_packed6,
)


def save(path: str | Path, network: Network) -> int:
    """Write a packed network atomically; returns the number of bytes."""
    data = pack(network)
    write_atomically(path, data)
    return len(data)


def pack(network: Network) -> bytes:
    """The packed file of a network."""
    config = network.config
    check_limits(config)
    tensors: dict[str, Any] = {}
    for name, entry in entries(config).items():
        if name.startswith("block."):
            parts = [array_of(block, name) for block in network.blocks]
            array = np.stack([pack6(part) for part in parts] if is_packed6(config, name) else parts)
        else:
            array = array_of(network, name)
        tensors[entry.name] = np.ascontiguousarray(array.reshape(entry.shape).astype(entry.kind.newbyteorder("<")))
    description: dict[str, Any] = {
        "version": VERSION,
        "config": in_file(config.to_dict()),
        "preprocess": network.preprocess.to_dict(),
        "class_names": list(network.class_names),
        "fraction_bits": network.fraction_bits,
        "head_exponent": network.head_exponent,
    }
    if network.trained_slice:
        description[TRAINED_SLICE] = list(network.trained_slice)
    if network.activity:
        description[ACTIVITY] = {
            point: [round(share, ACTIVITY_DIGITS) for share in shares] for point, shares in network.activity.items()
        }
    # One metadata key only, because the library does not guarantee an order of several.
    text = json.dumps(description, sort_keys=True, separators=(",", ":"))
    return to_safetensors(tensors, metadata={METADATA_KEY: text})

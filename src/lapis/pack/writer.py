"""Write a deployed network as bytes. The same network always gives the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from lapis._util.files import write_atomically
from lapis.deploy import schema
from lapis.deploy.network import Network, array_of
from lapis.ops.packing import pack6


def save(path: str | Path, network: Network) -> int:
    """Write a packed network atomically; returns the number of bytes."""
    data = pack(network)
    write_atomically(path, data)
    return len(data)


def pack(network: Network) -> bytes:
    """The packed file of a network."""
    config, tensors = network.config, {}
    for tensor in schema.tensors(config):
        kind, shape = tensor.in_file(config)
        arrays = [array_of(owner, tensor.name) for owner in (network.blocks if tensor.of_block else [network])]
        whole = np.stack([pack6(array) for array in arrays] if tensor.packs(config) else arrays)
        tensors[tensor.name] = np.ascontiguousarray(whole.reshape(shape).astype(kind.newbyteorder("<")))
    fields, shares, known = config.to_dict(), network.activity, schema.fields_of("")
    description: dict[str, Any] = {
        **{name: getattr(network, name) for name in known if name != "version"},
        "version": schema.VERSION,
        "config": {name: fields[name] for name in schema.fields_of("config")},
        "preprocess": network.preprocess.to_dict(),
        "activity": {point: [round(share, schema.ACTIVITY_DIGITS) for share in shares[point]] for point in shares},
    }
    kept = {name: value for name, value in description.items() if value or not known[name].optional}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    # One metadata key only, because the library does not guarantee an order of several.
    from safetensors.numpy import save as to_safetensors  # readers do without

    return to_safetensors(tensors, metadata={schema.METADATA_KEY: text})

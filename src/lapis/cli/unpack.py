"""`lapis unpack`: show the contents of a packed file."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import click
import numpy as np

from lapis import models
from lapis._util.files import check_target, write_atomically
from lapis._util.terminal import echo
from lapis.cli.completion import MODEL
from lapis.cli.options import json_option
from lapis.deploy.network import named_arrays
from lapis.errors import EXIT_CHECK_FAILED, EXIT_OK, LapisError
from lapis.pack import pack
from lapis.pack.format import DTYPES, LENGTH_BYTES, METADATA_KEY, VERSION, entries
from lapis.pack.reader import read_metadata


@click.command()
@click.argument("file", type=MODEL)
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Write every array, unpacked, to this .npz file.")
@json_option
def command(file: str, out: Path | None, as_json: bool) -> int:
    """Check a packed FILE and show what it holds; with --out also write its arrays for numpy.

    The network is packed again and must give the same bytes; that of an older version, the same tensors.

    \b
    Example:
      lapis unpack lapis_tiny.safetensors -o lapis_tiny.npz
    """
    check_target(out, "--out")
    opened = models.open(file)
    if opened.kind != "packed" or opened.path is None:
        raise LapisError(f"{file} is {models.KINDS[opened.kind]}; `lapis pack` makes a packed file of a checkpoint")
    path, network = opened.path, opened.network()
    data, again = path.read_bytes(), pack(network)
    version = _version(path)
    same_tensors = _tensors(data) == _tensors(again)
    # An older version has another header.
    kept = same_tensors if version < VERSION else data == again
    record: dict[str, Any] = {
        "file": str(path),
        "bytes": len(data),
        "version": version,
        "repacks_to_the_same_bytes": data == again,
        "repacks_to_the_same_tensors": same_tensors,
        "exact": network.exact,
        "config": network.config.to_dict(),
        "preprocess": network.preprocess.to_dict(),
        "class_names": list(network.class_names),
        "fraction_bits": network.fraction_bits,
        "affinity_bits": network.config.affinity_bits,
        "tensors": {
            entry.name: {"dtype": DTYPES[entry.kind], "shape": list(entry.shape), "bytes": entry.size}
            for entry in entries(network.config).values()
        },
    }
    if out is not None:
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **{name: array for name, array, _ in named_arrays(network)})
        write_atomically(out, buffer.getvalue())
        record["written"] = str(out)
    echo(*([json.dumps(record)] if as_json else _table(record)))
    return EXIT_OK if kept else EXIT_CHECK_FAILED


def _version(path: Path) -> int:
    return int(json.loads(read_metadata(path)[METADATA_KEY])["version"])


def _tensors(data: bytes) -> bytes:
    return data[LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "little") :]


def _table(record: dict[str, Any]) -> list[str]:
    config = record["config"]
    lines = [
        f"{record['file']}: {record['bytes']:,} bytes",
        f"{config['style']}, width {config['width']}, depth {config['depth']}, heads {config['heads']}, "
        f"T = {config['window']}, {config['image_size']} pixels, {config['classes']} classes, "
        f"{config['weight_bits']}-bit weights, {record['affinity_bits']}-bit affinities",
    ]
    lines += [
        f"  {name:24} {tensor['dtype']:4} {tensor['bytes']:12,}  {' x '.join(map(str, tensor['shape']))}"
        for name, tensor in record["tensors"].items()
    ]
    older = record["version"] < VERSION
    same = record["repacks_to_the_same_tensors" if older else "repacks_to_the_same_bytes"]
    what = f"tensors, in version {VERSION} instead of {record['version']}" if older else "bytes"
    lines.append(f"packed again it gives {'the same' if same else 'OTHER'} {what}")
    if "written" in record:
        lines.append(f"arrays written to {record['written']}")
    return lines

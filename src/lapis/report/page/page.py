"""Write one run as one HTML file, with its codes and a script that recomputes the attention from them."""

from __future__ import annotations

import base64
import io
import json
import re
import zlib
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

import lapis
from lapis._util.files import write_atomically
from lapis.codes import SQRT_HALF
from lapis.config import LapisConfig
from lapis.energy import Estimate, side_by_side
from lapis.energy.estimate import Row
from lapis.relations import rule_of
from lapis.report.checks import int8_ratio
from lapis.report.page.explained import Attention, Explained
from lapis.report.page.rollout import rollout
from lapis.report.page.weights import fitting_rows, gates_data, packed_size, weights_data
from lapis.trace import Point

# A page stays below 5 MB; this is the part for codes and for what is needed to make attention of them.
CODES_LIMIT = 4_200_000
# What is left out first if a network is too large for one page. Queries and keys stay, for the attention.
EXPENDABLE: tuple[Point, ...] = ("mlp_hidden", "mlp_in", "attention_in", "readout", "v")
# What the page says of a relation.
RULE_FACTS = ("name", "equation", "system", "origin", "adapted", "normalised")
SCRIPTS = (
    "operator.js",
    "dom.js",
    "charts.js",
    "evidence.js",
    "membrane.js",
    "rule.js",
    "lens.js",
    "readings.js",
    "raster.js",
    "summary.js",
    "app.js",
)


def write_page(path: str | Path, explained: Explained) -> int:
    """Write the page and return its size in bytes."""
    return write_html(path, render(explained))


def render(explained: Explained) -> str:
    """The whole page as text: markup, style, script and data, with no reference to anything outside."""
    title = f"{_best_class(explained)} · Lapis explains {explained.model or 'a network'}"
    return fill("explain", title, payload(explained), SCRIPTS)


def fill(verb: str, title: str, data: dict[str, Any], scripts: tuple[str, ...], live: bool = False) -> str:
    """The page of a command: the frame that all pages share with its body, title, style, data and scripts in place.

    A `live` page also gets the controls that take a picture, and may run WebAssembly.
    """
    parts = {
        "@VERB@": verb,
        "@BODY@": _part(f"{verb}.html").replace("@LIVE@\n", _part("live.html") if live else "").rstrip(),
        "@ENGINE@": " 'wasm-unsafe-eval'" if live else "",
        "@TITLE@": _escape(title),
        "@STYLE@": _part("style.css"),
        # In an HTML script only '<' can end the script or start a comment; JSON allows it as an escape.
        "@DATA@": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        "@SCRIPT@": "\n".join(_part(name) for name in scripts),
    }
    pieces = re.split("(@[A-Z]+@)", _part("frame.html"))
    return "".join(parts.get(piece, piece) for piece in pieces)


def write_html(path: str | Path, text: str) -> int:
    """Write a page atomically and return its size in bytes."""
    data = text.encode("utf-8", "backslashreplace")
    write_atomically(path, data)
    return len(data)


def payload(explained: Explained, limit: int = CODES_LIMIT) -> dict[str, Any]:
    """All data for the script; the codes are compressed signed bytes."""
    config, tally = explained.config, explained.tally
    facts = network_facts(config, explained.class_names, explained.attention)
    stored = facts["stored"] or {}
    facts |= _contents(explained, limit - sum(len(each) for each in stored.values()))
    shares = rollout(explained)
    estimates = side_by_side(config, tally)
    return facts | {
        "model": explained.model,
        "executor": explained.executor,
        "picture": explained.picture,
        "label": explained.label,
        "note": explained.note,
        "image": data_url(explained.image),
        "logits": [float(value) for value in explained.logits],
        "gates": gates_data(explained.recorded or ()),
        "rollout": None if shares is None else [float(f"{share:.6g}") for share in shares],
        "evidence": _evidence(explained),
        "fired": {point: [tally.fired[block, point] for block in range(config.depth)] for point in tally.activities()},
        "neurons": {point: tally.neurons[0, point] for point in tally.activities()},
        "int8_ratio": int8_ratio(config, tally),
        "energy": [energy_rows(estimate) for estimate in estimates],
    }


def network_facts(config: LapisConfig, class_names: tuple[str, ...], attention: Attention) -> dict[str, Any]:
    """The data for the script that do not depend on an image."""
    leak, stored, readout = attention.leak, attention.stored, attention.readout
    rule = rule_of(config.relation)
    return {
        "version": lapis.__version__,
        "config": config.to_dict(),
        "tokens": config.tokens,
        "grid": config.grid,
        "channels": config.head_width,
        "sqrtHalf": SQRT_HALF,
        "classes": list(class_names or (f"class {number}" for number in range(config.classes))),
        "rule": {name: getattr(rule, name) for name in RULE_FACTS},
        "tau": None if attention.tau is None else attention.tau.astype(float).tolist(),
        "delays": _delays(attention.delays),
        "affinityBits": config.affinity_bits,
        "leak": leak and {"mantissa": leak.mantissa.tolist(), "exponent": leak.exponent.tolist()},
        "stored": stored and {"mantissa": _packed(stored.mantissa, "<u4"), "exponent": _packed(stored.exponent, "<i4")},
        "weights": None,
        "gates": {},
        "readout": readout and {"scale": readout.scale.tolist(), "shift": readout.shift.tolist()},
        "decides": "patches" if config.mean_pooling else "class token",
    }


def _evidence(explained: Explained) -> dict[str, Any] | None:
    evidence = explained.evidence
    if evidence is None:
        return None
    return {
        "method": evidence.method,
        "says": evidence.description(),
        "side": evidence.side,
        "classes": [
            {
                "index": index,
                "score": float(score),
                "rest": None if evidence.rest is None else float(evidence.rest[number]),
                "values": [[float(f"{value:.5g}") for value in row] for row in evidence.values[number]],
            }
            for number, (index, score) in enumerate(zip(evidence.classes, evidence.scores, strict=True))
        ],
    }


def _contents(explained: Explained, limit: int) -> dict[str, Any]:
    """The blocks and points that fit the limit, and their codes: block by block, point by point, token by token.

    With them come the weights that were recorded. They are rounded more before anything is left out.
    """
    config, trace = explained.config, explained.trace
    points: list[Point] = list(explained.tally.activities())
    chunks = {key: trace[key][0].astype(np.int8).tobytes() for key in trace}
    sizes = {key: len(_compress(chunk)) * 4 // 3 for key, chunk in chunks.items()}
    blocks = list(range(config.depth))
    rows = fitting_rows(explained.recorded or (), limit - sum(sizes.values()))
    row_sizes = {block: packed_size(each) for block, each in rows.items()}

    def size() -> int:
        return sum(row_sizes.get(block, 0) + sum(sizes[block, each] for each in points) for block in blocks)

    for point in EXPENDABLE:
        if size() > limit and point in points:
            points.remove(point)
    while len(blocks) > 2 and size() > limit:
        blocks = _spread(config, len(blocks) - 1)
    whole = b"".join(chunks[block, point] for block in blocks for point in points)
    return {
        "blocks": blocks,
        "points": points,
        "codes": base64.b64encode(_compress(whole)).decode(),
        "weights": weights_data(rows, blocks),
    }


def _compress(data: bytes) -> bytes:
    """Codes have few repeated strings, so Huffman coding alone gives a smaller result and is much faster."""
    packer = zlib.compressobj(strategy=zlib.Z_HUFFMAN_ONLY)
    return packer.compress(data) + packer.flush()


def _spread(config: LapisConfig, count: int) -> list[int]:
    """`count` blocks, evenly spread, the first and the last among them."""
    return [round(index * (config.depth - 1) / (count - 1)) for index in range(count)]


def _delays(delays: npt.NDArray[np.int64] | None) -> dict[str, Any] | None:
    if delays is None:
        return None
    return {"offsets": delays.shape[1], "table": _packed(delays, "<u4")}


def _packed(array: npt.NDArray[Any], kind: str) -> str:
    return base64.b64encode(zlib.compress(array.astype(kind).tobytes())).decode()


def energy_rows(estimate: Estimate) -> dict[str, Any]:
    """The sums of an estimate, and for every operator our energy and that of the dense network."""
    ours, dense = _by_operator(estimate.rows), _by_operator(estimate.dense_rows)
    return estimate.summary() | {
        "node": estimate.costs.node,
        "rows": [
            {
                "operator": name,
                "ours": ours.get(name, {"mj": 0.0, "count": 0.0, "kinds": []}),
                "dense": dense.get(name, {"mj": 0.0, "count": 0.0, "kinds": []}),
            }
            for name in dict.fromkeys((*ours, *dense))
        ],
    }


def _by_operator(rows: list[Row]) -> dict[str, dict[str, Any]]:
    sums: dict[str, dict[str, Any]] = {}
    for row in rows:
        entry = sums.setdefault(row.operator, {"mj": 0.0, "count": 0.0, "kinds": []})
        entry["mj"] += row.energy_mj
        entry["count"] += row.count
        if row.kind not in entry["kinds"]:
            entry["kinds"].append(row.kind)
    return sums


def data_url(image: np.ndarray) -> str:
    """An image as text that a page can hold."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _best_class(explained: Explained) -> str:
    best = int(explained.logits.argmax())
    return explained.class_names[best] if explained.class_names else f"class {best}"


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _part(name: str) -> str:
    return (files("lapis.report.page") / name).read_text(encoding="utf-8")

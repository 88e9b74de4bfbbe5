"""Write one run as one HTML file, with its codes and a script that recomputes the attention from them."""

from __future__ import annotations

import base64
import html
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
from lapis.energy import Estimate, estimate, side_by_side
from lapis.relations import rule_of
from lapis.report.page.evidence import describe_occlusion, rollout
from lapis.report.page.explain import AttentionSource, Explained
from lapis.runtime.session import NUMPY, Session
from lapis.trace import Point, Tally

# A page stays below 5 MB; this is the part for codes and for what is needed to make attention of them.
CODES_LIMIT = 4_200_000
# What is left out first if a network is too large for one page. Queries and keys stay, for the attention.
EXPENDABLE: tuple[Point, ...] = ("mlp_hidden", "mlp_in", "attention_in", "readout", "v")
# The largest integer of a recorded weight: one byte is enough for the colours of a map.
WEIGHT_LEVELS = 127
INT8_COSTS = "45nm_int8"
# What the page says of a relation.
RULE_FACTS = ("name", "equation", "normalised")
_NAMES = ("operator", "dom", "charts", "evidence", "membrane", "rule", "lens", "readings", "raster", "summary", "app")
SCRIPTS = tuple(f"{name}.js" for name in _NAMES)


def write_page(path: str | Path, explained: Explained) -> int:
    """Write the page and return its size in bytes."""
    return write_html(path, render(explained))


def render(explained: Explained) -> str:
    """The whole page as text: markup, style, script and data, with no reference to anything outside."""
    title = f"{explained.answer} · Lapis explains {explained.model or 'a network'}"
    return fill("explain", title, payload(explained), SCRIPTS)


def fill(verb: str, title: str, data: dict[str, Any], scripts: tuple[str, ...], live: bool = False) -> str:
    """The page of a command: the frame that all pages share with its body, title, style, data and scripts in place.

    A `live` page also gets the controls that take a picture, and may run WebAssembly.
    """
    parts = {
        "@VERB@": verb,
        "@BODY@": _part(f"{verb}.html").replace("@LIVE@\n", _part("live.html") if live else "").rstrip(),
        "@ENGINE@": " 'wasm-unsafe-eval'" if live else "",
        "@TITLE@": html.escape(title, quote=False),
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
    facts = network_facts(config, explained.class_names, explained.attention, explained.min_score)
    stored = facts["stored"] or {}
    facts |= _contents(explained, limit - sum(len(each) for each in stored.values()))
    shares, evidence, facts["evidence"] = rollout(explained), explained.evidence, None
    if evidence is not None:
        maps = [[[float(f"{value:.5g}") for value in row] for row in values] for values in evidence.values]
        found = zip(evidence.classes, map(float, evidence.scores), maps, strict=True)
        classes = [{"index": index, "score": score, "values": values} for index, score, values in found]
        facts["evidence"] = {"says": describe_occlusion(evidence.side), "side": evidence.side, "classes": classes}
    return facts | {
        "model": explained.model,
        "executor": explained.executor,
        "picture": explained.picture,
        "label": explained.label,
        "image": data_url(explained.image),
        "logits": [float(value) for value in explained.logits],
        "rollout": None if shares is None else [float(f"{share:.6g}") for share in shares],
        "fired": {point: [tally.fired[block, point] for block in range(config.depth)] for point in tally.activities()},
        "neurons": {point: tally.neurons[0, point] for point in tally.activities()},
        "int8_ratio": int8_ratio(config, tally),
        "energy": [energy_rows(each) for each in side_by_side(config, tally)],
    }


def network_facts(
    config: LapisConfig, class_names: tuple[str, ...], attention: AttentionSource, min_score: float | None
) -> dict[str, Any]:
    """The data for the script that do not depend on an image."""
    delays, leak, stored, readout = attention.delays, attention.leak, attention.stored, attention.readout
    rule = rule_of(config.relation)
    return {
        "version": lapis.__version__,
        "config": config.to_dict(),
        "tokens": config.tokens,
        "grid": config.grid,
        "channels": config.head_width,
        "sqrtHalf": SQRT_HALF,
        "min_score": min_score,
        "classes": list(class_names or (f"class {number}" for number in range(config.classes))),
        "rule": {name: getattr(rule, name) for name in RULE_FACTS},
        "tau": None if attention.tau is None else attention.tau.astype(float).tolist(),
        "delays": delays if delays is None else {"offsets": delays.shape[1], "table": _packed(delays, "<u4")},
        "affinityBits": config.affinity_bits,
        "leak": leak and {"mantissa": leak.mantissa.tolist(), "exponent": leak.exponent.tolist()},
        "stored": stored and {"mantissa": _packed(stored.mantissa, "<u4"), "exponent": _packed(stored.exponent, "<i4")},
        "weights": None,
        "readout": readout and {"scale": readout.scale.tolist(), "shift": readout.shift.tolist()},
        "decides": "patches" if config.mean_pooling else "class token",
    }


def _contents(explained: Explained, limit: int) -> dict[str, Any]:
    """The blocks and points that fit the limit, and their codes: block by block, point by point, token by token.

    With them come the weights that were recorded.
    """
    config, trace = explained.config, explained.trace
    points: list[Point] = list(explained.tally.activities())
    chunks = {key: trace[key][0].astype(np.int8).tobytes() for key in trace}
    sizes = {key: len(_compress(chunk)) * 4 // 3 for key, chunk in chunks.items()}
    blocks = list(range(config.depth))
    recorded = enumerate(explained.attention.recorded or ())
    rows = {block: round_weights(weights) for block, weights in recorded if weights is not None}
    row_sizes = {block: len(_packed(steps, "<f4")) + len(_packed(z, "<i1")) for block, (steps, z) in rows.items()}

    def size() -> int:
        return sum(row_sizes.get(block, 0) + sum(sizes[block, each] for each in points) for block in blocks)

    for point in EXPENDABLE:
        if size() > limit and point in points:
            points.remove(point)
    while len(blocks) > 2 and size() > limit:
        # Evenly spread, the first and the last among them.
        count = len(blocks) - 1
        blocks = [round(index * (config.depth - 1) / (count - 1)) for index in range(count)]
    whole = b"".join(chunks[block, point] for block in blocks for point in points)
    contents: dict[str, Any] = {
        "blocks": blocks,
        "points": points,
        "codes": base64.b64encode(_compress(whole)).decode(),
    }
    kept = [block for block in blocks if block in rows]
    if kept:
        steps, integers = (np.concatenate([rows[block][part].ravel() for block in kept]) for part in (0, 1))
        contents["weights"] = {
            "blocks": kept,
            "weighing": list(rows),
            "levels": WEIGHT_LEVELS,
            "steps": _packed(steps, "<f4"),
            "integers": _packed(integers, "<i1"),
        }
    return contents


def round_weights(weights: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int8]]:
    """W_ij = step_i z_ij to the nearest integer z: steps (H, N), the largest weight of a row over the largest z."""
    steps = (np.abs(weights).max(axis=-1) / WEIGHT_LEVELS).astype(np.float32)
    integers = np.rint(weights / np.where(steps > 0, steps, 1)[..., None])
    return steps, np.clip(integers, -WEIGHT_LEVELS, WEIGHT_LEVELS).astype(np.int8)


def _compress(data: bytes) -> bytes:
    """Codes have few repeated strings, so Huffman coding alone gives a smaller result and is much faster."""
    packer = zlib.compressobj(strategy=zlib.Z_HUFFMAN_ONLY)
    return packer.compress(data) + packer.flush()


def _packed(array: npt.NDArray[Any], kind: str) -> str:
    return base64.b64encode(zlib.compress(array.astype(kind).tobytes())).decode()


def engine_name(session: Session) -> str:
    """What runs a session, in words."""
    return session.executor if session.executor == NUMPY else f"the native engine ({session.executor})"


def int8_ratio(config: LapisConfig, tally: Tally) -> float:
    """How many times less energy than the dense network in int8, both priced by the table `45nm_int8`."""
    return estimate(config, tally, costs=INT8_COSTS).ratio


_COMPARED = {"ours": "lapis", "quantized": "quantized", "dense": "dense"}


def energy_rows(made: Estimate) -> dict[str, Any]:
    """The sums of an estimate, and for every operator our energy and that of two rivals."""
    rows: dict[str, dict[str, Any]] = {}
    for key, name in _COMPARED.items():
        for operation in made.networks()[name]:
            nothing = {each: {"mj": 0.0, "count": 0.0, "kinds": []} for each in _COMPARED}
            row = rows.setdefault(operation.operator, {"operator": operation.operator} | nothing)
            row[key]["mj"] += operation.energy_mj
            row[key]["count"] += operation.count
            if operation.kind not in row[key]["kinds"]:
                row[key]["kinds"].append(operation.kind)
    return made.summary() | {"node": made.costs.node, "rows": list(rows.values())}


def data_url(image: np.ndarray) -> str:
    """An image as text that a page can hold."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _part(name: str) -> str:
    return (files("lapis.report.page") / name).read_text(encoding="utf-8")

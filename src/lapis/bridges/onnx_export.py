"""A deployed network as an ONNX file: standard operators alone, the same integer logits as the integer model.

Each function is one step of `lapis.deploy.integer`, in the same order. Weights are int8 and codes are bytes, multiplied
by MatMulInteger. Sums of two such products stay below 2**15: kernels without a dot product instruction add pairs in 16
bits and would saturate. Only patches, norms and head need 64 bits: squares have 63, and the definition divides in
float64.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from lapis._util.files import write_atomically, write_text
from lapis.bridges import onnx_tables
from lapis.bridges.onnx_graph import Graph
from lapis.codes import round_half_up
from lapis.deploy import arithmetic
from lapis.deploy.integer import QKV
from lapis.deploy.network import Layer, Network, Norm, named_arrays
from lapis.errors import LapisError
from lapis.positions import relative_offsets
from lapis.trace import Point

IMAGES, INTEGER_LOGITS, LOGITS = "images", "integer_logits", "logits"
# What transformers calls (byte / 255 - mean) / std of shape (B, 3, S, S).
PIXEL_VALUES = "pixel_values"
# An ONNX file is one protocol buffer, which ends at 2 GiB.
MAX_BYTES = 2_000_000_000
# Affinities of more than 8 bits are multiplied as two bytes: 7 low bits, and at most 8 high bits.
BYTE, LOW_BITS = 8, 7

FLOAT, INT = np.float32, np.int32


def export(network: Network, watched: bool = False, normalized: bool = False) -> bytes:
    """The network as an ONNX file; `watched` adds the codes at every measuring point, named BLOCK.POINT, as outputs.

    With `normalized` the input is transformers' pixel_values, from which the bytes are found again.
    """
    config, size = network.config, network.config.image_size
    stored = sum(array.nbytes for _, array, _ in named_arrays(network))
    if stored > MAX_BYTES:
        raise LapisError(f"the network has {stored:,} bytes; an ONNX file holds at most {MAX_BYTES:,}, so use Session")
    writer = Writer(network, watched)
    stream = writer.embed(writer.bytes_of(PIXEL_VALUES) if normalized else IMAGES)
    for index in range(config.depth):
        stream = writer.attention(index, stream)
        stream = writer.feed_forward(index, stream)
    writer.classify(stream)
    outputs: dict[str, tuple[Any, list[int | str]]] = {
        INTEGER_LOGITS: (np.int64, ["batch", config.classes]),
        LOGITS: (FLOAT, ["batch", config.classes]),
    }
    outputs |= {name: (np.int8, ["batch", config.tokens, width]) for name, width in writer.points.items()}
    inputs: dict[str, tuple[Any, list[int | str]]] = {IMAGES: (np.uint8, ["batch", size, size, 3])}
    if normalized:
        inputs = {PIXEL_VALUES: (FLOAT, ["batch", 3, size, size])}
    metadata = {
        "class_names": json.dumps(list(network.class_names)),
        "preprocess": json.dumps(dataclasses.asdict(network.preprocess)),
        "head_exponent": str(network.head_exponent),
    }
    return writer.graph.model(inputs, outputs, metadata)


def write_folder(folder: Path, network: Network) -> None:
    """A classifier in the form of transformers, which needs neither Lapis nor its torch network."""
    config, rule = network.config, network.preprocess
    names = dict(enumerate(network.class_names or map(str, range(config.classes))))
    about = {
        "model_type": "vit", "image_size": config.image_size, "patch_size": config.patch_size,
        "hidden_size": config.width, "num_hidden_layers": config.depth, "num_attention_heads": config.heads,
        "id2label": names, "label2id": {name: number for number, name in names.items()},
    }  # fmt: skip
    preparation = {
        "image_processor_type": "CLIPImageProcessor", "image_mean": rule.mean, "image_std": rule.std,
        "size": {"shortest_edge": int(round_half_up(rule.size / rule.crop))},
        "resample": Image.Resampling[rule.interpolation.upper()].value,
        "do_center_crop": True, "crop_size": {"height": rule.size, "width": rule.size},
    }  # fmt: skip
    folder.mkdir()
    write_atomically(folder / "model.onnx", export(network, normalized=True))
    write_text(folder / "config.json", json.dumps(about, indent=1) + "\n")
    write_text(folder / "preprocessor_config.json", json.dumps(preparation, indent=1) + "\n")


class Writer:
    """Adds the steps of one network to a graph. Values are named by strings; the stream is int32 (B, N, D)."""

    def __init__(self, network: Network, watched: bool) -> None:
        self.network, self.watched = network, watched
        self.graph = Graph()
        self.points: dict[str, int] = {}
        self.membranes = network.membranes_by_distance()

    def bytes_of(self, values: str) -> str:
        """The bytes (B, S, S, 3) that became these pixel values."""
        g, rule = self.graph, self.network.preprocess
        scale, shift = (np.multiply(255, part, dtype=np.float64).astype(FLOAT) for part in (rule.std, rule.mean))
        pixels = self._affine(g.transpose(values, 0, 2, 3, 1), scale, shift)
        return g.cast(g.add("Clip", g.add("Round", pixels), FLOAT(0), FLOAT(255)), np.uint8)

    def embed(self, images: str) -> str:
        """Patches to tokens. The 16-bit weights are two bytes each, unsigned: those kernels never saturate."""
        g, network, config = self.graph, self.network, self.network.config
        side, grid = config.patch_size, config.grid
        patches = g.transpose(g.reshape(images, 0, grid, side, grid, side, 3), 0, 1, 3, 2, 4, 5)
        patches = g.reshape(patches, 0, grid * grid, side * side * 3)
        weight = network.patch_weight.T.astype(np.int32)
        high = g.add(
            "MatMulInteger", patches, ((weight >> 8) + 128).astype(np.uint8), np.uint8(0), np.uint8(128)
        )  # fmt: skip
        low = g.add("MatMulInteger", patches, (weight & 255).astype(np.uint8))
        total = g.add("Add", g.add("Mul", g.cast(high, np.int64), np.int64(256)), g.cast(low, np.int64))
        unit = np.int64(1) << network.patch_shift.astype(np.int64)
        moved = g.quotient(g.add("Add", total, unit // 2), unit)
        tokens = self._saturate(g.add("Add", moved, network.position[1:].astype(np.int64)), np.int64)
        first = arithmetic.saturate(network.position[:1].astype(np.int64))[None]
        batch = g.add("Slice", g.add("Shape", images), np.array([0]), np.array([1]))
        repeated = g.add("Expand", first, g.add("Concat", batch, np.array([1, config.width]), axis=0))
        return g.add("Concat", repeated, g.cast(tokens, INT), axis=1)

    def attention(self, index: int, stream: str) -> str:
        """The stream after the first half of a block."""
        g, block, config = self.graph, self.network.blocks[index], self.network.config
        codes = self._fire(index, "attention_in", self._norm(block.attention_norm, stream))
        pre = self._layer(block.qkv, "attention_in", codes)
        bounds = [np.array([part * config.width]) for part in range(4)]
        q, k, v = (
            self._fire(index, point, g.add("Slice", pre, bounds[part], bounds[part + 1], np.array([2])))
            for part, point in enumerate(QKV)
        )
        distance = self._dot_distance if self.network.compared_by == "dot" else self._distance
        affinity = self._affinity(index, distance(index, q, k))
        scaled = self._mix(affinity, v)
        mixed = g.reshape(g.transpose(scaled, 0, 2, 1, 3), 0, config.tokens, config.width)
        mixed = self._affine(mixed, block.readout.scale, block.readout.shift)
        return self._add_to_stream(stream, self._layer(block.proj, "readout", self._fire(index, "readout", mixed)))

    def feed_forward(self, index: int, stream: str) -> str:
        """The stream after the second half of a block."""
        block, network = self.network.blocks[index], self.network
        codes = self._fire(index, "mlp_in", self._norm(block.mlp_norm, stream))
        pre = self._layer(block.fc1, "mlp_in", codes)
        low, min_code = network.low("mlp_hidden"), network.min_code("mlp_hidden", index)
        hidden = self._ladder(pre, onnx_tables.ladder(block.rise, block.fall, low, min_code))
        self._note(index, "mlp_hidden", hidden)
        return self._add_to_stream(stream, self._layer(block.fc2, "mlp_hidden", hidden))

    def classify(self, stream: str) -> None:
        """The class token, or the rounded mean of the patches, to integer logits and the real ones."""
        g, network = self.graph, self.network
        if network.config.mean_pooling:
            patches = network.config.tokens - 1
            total = g.sum(g.cast(g.add("Slice", stream, *map(np.array, ([1], [patches + 1], [1]))), np.int64), 1, False)
            twice = g.add("Add", g.add("Mul", total, np.int64(2)), np.int64(patches))
            pooled = g.quotient(twice, np.int64(2 * patches))
        else:
            pooled = g.add("Gather", stream, np.int64(0), axis=1)
        scaled = g.add("Mul", self._standardise(pooled), FLOAT(1 << arithmetic.POOLED_BITS))
        rounded = g.add("Floor", g.add("Add", scaled, FLOAT(0.5)))
        token = g.add("Clip", rounded, FLOAT(arithmetic.INT16.min), FLOAT(arithmetic.INT16.max))
        # The sums have up to 53 bits: exact in float64, in any order.
        weight = g.cast(g.constant(network.head_weight.T), np.float64)
        product = g.cast(g.add("MatMul", g.cast(token, np.float64), weight), np.int64)
        logits = g.call(g.add("Add", product, network.head_bias), INTEGER_LOGITS)
        unit = np.float64(2.0 ** -(arithmetic.POOLED_BITS + network.head_exponent))
        g.call(g.cast(g.add("Mul", g.cast(logits, np.float64), unit), FLOAT), LOGITS)

    def _standardise(self, stream: str) -> str:
        """LayerNorm without gain and shift of integers (..., D), as `arithmetic.standardise` defines it."""
        g, width = self.graph, self.network.config.width
        stream = g.cast(stream, np.int64)
        total = g.sum(stream)
        twice = g.add("Add", g.add("Mul", total, np.int64(2)), np.int64(width))
        mean = g.quotient(twice, np.int64(2 * width))
        centred = g.add("Sub", stream, mean)
        rest = g.add("Sub", total, g.add("Mul", mean, np.int64(width)))
        squares = g.cast(g.sum(g.add("Mul", centred, centred)), np.float64)
        correction = g.add("Div", g.cast(g.add("Mul", rest, rest), np.float64), np.float64(width))
        variance = g.add("Div", g.add("Sub", squares, correction), np.float64(width))
        root = g.add("Sqrt", g.add("Add", variance, np.float64(self.network.eps)))
        rstd = g.cast(g.add("Div", np.float64(1), root), FLOAT)
        return g.add("Mul", g.cast(centred, FLOAT), rstd)

    def _norm(self, norm: Norm, stream: str) -> str:
        return self._affine(self._standardise(stream), norm.gain, norm.shift)

    def _affine(self, x: str, scale: Any, shift: Any) -> str:
        return self.graph.add("Add", self.graph.add("Mul", x, scale), shift)

    def _layer(self, layer: Layer, point: Point, codes: str) -> str:
        """A linear layer on codes. Bytes are unsigned: signed codes are moved by T, the zero point of the product."""
        g, low = self.graph, self.network.low(point)
        total = g.add("MatMulInteger", self._bytes(codes, point), np.ascontiguousarray(layer.weight.T), np.uint8(-low))
        return self._affine(g.cast(total, FLOAT), layer.scale, layer.shift)

    def _bytes(self, codes: str, point: Point) -> str:
        """Codes as bytes above the lowest one."""
        low = self.network.low(point)
        return self.graph.cast(self.graph.add("Sub", codes, FLOAT(low)) if low else codes, np.uint8)

    def _fire(self, index: int, point: Point, pre: str) -> str:
        """The codes of a measuring point, as float32."""
        g, min_code = self.graph, self.network.min_code(point, index)
        low, high = self.network.low(point), self.network.config.window
        codes = g.add("Clip", g.add("Floor", pre), FLOAT(low), FLOAT(high))
        if min_code > 1:
            codes = g.add("Where", g.add("Less", g.add("Abs", codes), FLOAT(min_code)), FLOAT(0), codes)
        self._note(index, point, codes)
        return codes

    def _note(self, index: int, point: Point, codes: str) -> None:
        if self.watched:
            name = f"{index}.{point}"
            self.graph.call(self.graph.cast(codes, np.int8), name)
            self.points[name] = self.network.config.hidden if point == "mlp_hidden" else self.network.config.width

    def _ladder(self, pre: str, table: onnx_tables.Ladder) -> str:
        g, shape = self.graph, (-1, self.network.config.tokens, self.network.config.hidden)
        cell = self._affine(pre, table.factor, table.offset)
        cell = g.cast(g.add("Clip", cell, FLOAT(0), FLOAT(onnx_tables.CELLS - 1)), INT)
        place = g.add("Mul", cell, INT(len(table.edges) + 1))
        for edges in table.edges:
            passed = g.add("GreaterOrEqual", pre, g.lookup(edges, cell, *shape))
            place = g.add("Add", place, g.cast(passed, INT))
        return g.lookup(table.codes.reshape(-1).astype(FLOAT), place, *shape)

    def _dot_distance(self, index: int, q: str, k: str) -> str:
        """How far products (B, H, N, N) lie below the largest of their row, int32, kept within the table."""
        g, config = self.graph, self.network.config
        split = (0, config.tokens, config.heads, config.head_width)
        queries = g.transpose(g.reshape(self._bytes(q, "q"), *split), 0, 2, 1, 3)
        keys = g.transpose(g.reshape(g.cast(k, np.int8), *split), 0, 2, 3, 1)
        products = g.add("MatMulInteger", queries, keys, np.uint8(-self.network.low("q")))
        distance = g.add("Sub", g.add("ReduceMax", products, np.array([-1]), keepdims=1), products)
        return g.add("Min", distance, INT(self.membranes[index][0].shape[1] - 1))

    def _distance(self, index: int, q: str, k: str) -> str:
        """The l1 distances (B, H, N, N), int32: codes as rows of +1 and -1, whose product counts what differs."""
        g, network, config = self.graph, self.network, self.network.config
        low, levels = network.low("q"), config.window - network.low("q")
        signs = onnx_tables.thermometer(levels)
        rows = []
        # The left signs are bytes 0 and 2 with the zero point 1: two signed factors take nine times as long.
        for codes, table, axes in ((q, (signs + 1).astype(np.uint8), (0, 2, 1, 3, 4)), (k, signs, (0, 2, 3, 4, 1))):
            place = g.cast(g.add("Sub", codes, FLOAT(low)) if low else codes, INT)
            split = g.reshape(g.add("Gather", table, place), 0, config.tokens, config.heads, -1, levels)
            rows.append(g.transpose(split, *axes))
        places = config.head_width * levels
        left = g.reshape(rows[0], 0, config.heads, config.tokens, places)
        right = g.reshape(rows[1], 0, config.heads, places, config.tokens)
        agreement = g.add("MatMulInteger", left, right, np.uint8(1))
        distance = g.add("Div", g.add("Sub", INT(places), agreement), INT(2))
        leak = network.blocks[index].leak
        if leak is None or leak.delay is None:
            return distance
        delay = g.add("Gather", leak.delay.T.astype(np.int32), relative_offsets(config.grid).astype(INT), axis=1)
        return g.add("Add", distance, delay)

    def _affinity(self, index: int, distance: str) -> str:
        """Affinities (B, H, N, N) as float32, in which all of this is exact."""
        g, bits = self.graph, self.network.config.affinity_bits
        mantissa, exponent = onnx_tables.affinity_parts(*self.membranes[index])
        heads, size = mantissa.shape
        shape = (-1, heads, self.network.config.tokens, self.network.config.tokens)
        place = g.add("Add", distance, (np.arange(heads, dtype=INT) * INT(size))[:, None, None])
        power = g.lookup(exponent.reshape(-1), place, *shape)
        # The nearest key has the least exponent, because affinities never rise with the distance.
        nearest = g.add("ReduceMin", power, np.array([-1]), keepdims=1)
        behind = g.add("Clip", g.add("Sub", power, nearest), FLOAT(0), FLOAT(onnx_tables.VANISHED))
        halves = np.exp2(float(bits - onnx_tables.TOP_BITS) - np.arange(onnx_tables.VANISHED + 1)).astype(FLOAT)
        factor = g.lookup(halves, g.cast(behind, INT), *shape)
        scaled = g.add("Mul", g.lookup(mantissa.reshape(-1), place, *shape), factor)
        return g.add("Min", g.add("Floor", g.add("Add", scaled, FLOAT(0.5))), FLOAT((1 << bits) - 1))

    def _mix(self, affinity: str, v: str) -> str:
        """Sums of values (B, H, N, C), times the row's power of two."""
        g, config, bits = self.graph, self.network.config, self.network.config.affinity_bits
        values = g.reshape(g.cast(v, np.int8), 0, config.tokens, config.heads, config.head_width)
        values = g.transpose(values, 0, 2, 1, 3)
        total = g.cast(self._sums(affinity, values), FLOAT)
        mass = g.sum(g.cast(affinity, INT))
        edges = onnx_tables.mass_edges(config.tokens, bits)
        passed = g.sum(g.cast(g.add("GreaterOrEqual", mass, edges), INT))
        halves = np.exp2(1.0 - bits - np.arange(len(edges) + 1)).astype(FLOAT)
        return g.add("Mul", total, g.lookup(halves, passed, -1, config.heads, config.tokens, 1))

    def _sums(self, affinity: str, values: str) -> str:
        """Affinities times values, summed: one product of bytes, or two where an affinity does not fit one."""
        g = self.graph
        if self.network.config.affinity_bits <= BYTE:
            return g.add("MatMulInteger", g.cast(affinity, np.uint8), values)
        high = g.add("Floor", g.add("Mul", affinity, FLOAT(2.0**-LOW_BITS)))
        low = g.add("Sub", affinity, g.add("Mul", high, FLOAT(1 << LOW_BITS)))
        high, low = (g.add("MatMulInteger", g.cast(part, np.uint8), values) for part in (high, low))
        return g.add("Add", g.add("Mul", high, INT(1 << LOW_BITS)), low)

    def _add_to_stream(self, stream: str, delta: str) -> str:
        g = self.graph
        return self._saturate(g.add("Add", stream, g.cast(g.add("Floor", delta), INT)), INT)

    def _saturate(self, stream: str, kind: Any) -> str:
        limit = arithmetic.STREAM_LIMIT
        return self.graph.add("Clip", stream, kind(-limit), kind(limit - 1))

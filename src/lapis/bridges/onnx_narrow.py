"""A deployed network as an ONNX file without 64-bit types, for runtimes that compute those in 32 bits, as OpenVINO.

Integers are int32, or whole numbers below 2**24 in float32, where sums are exact in any order. Three steps of the
definition have more bits. Patches and head are split into digits. The norm's sum of squares is exact too, as sums of
products of 7-bit digits; its root is taken in pairs of float32, with an error below 2**-44, where the definition uses
float64. Both round to the same float32 unless the root lies that close to the middle between two: about one norm in a
million, where the last bit may differ, and hardly ever a code with it.

Such runtimes also contract x a + b into one rounding, and the definition has two: `_affine` stops them.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from lapis.bridges.onnx_export import FLOAT, IMAGES, INT, INTEGER_LOGITS, LOGITS, Writer, written
from lapis.deploy import arithmetic
from lapis.deploy.network import Network
from lapis.errors import LapisError
from lapis.ops.integer_attention.reference import AFFINITY_MAX

# A row of the stream is summed in two halves of so many low bits and the rest.
HALF_BITS = 12
# Squares are sums of products of such digits; four of them hold any difference of two values of the stream.
DIGIT_BITS, DIGITS = 7, 4
MAX_WIDTH = 1 << 10
MAX_TOKENS = arithmetic.EXACT_FLOAT32 // AFFINITY_MAX
# Splits a float32 into two of 12 bits.
SPLITTER = FLOAT((1 << 12) + 1)


def export_narrow(network: Network, watched: bool = False) -> bytes:
    """The network as an ONNX file without 64-bit types; see `onnx_export.export`. Its integer logits are int32."""
    config = network.config
    if config.width > MAX_WIDTH or config.tokens > MAX_TOKENS:
        raise LapisError(
            f"width={config.width} and {config.tokens} tokens have sums that 32 bits do not hold; at most {MAX_WIDTH} "
            f"and {MAX_TOKENS} can be exported for OpenVINO, so export for ONNX Runtime"
        )
    largest = largest_logit(network)
    if largest >= 2**31:
        raise LapisError(
            f"logits of this network may reach {largest:.3g}, which 32 bits do not hold; export for ONNX Runtime"
        )
    return written(NarrowWriter, network, watched)


def largest_logit(network: Network) -> float:
    """A bound of all integer logits: the pooled token is at most sqrt(D) 1024 long, and 1/2 per channel more."""
    length = ((1 << arithmetic.POOLED_BITS) + 1) * network.config.width**0.5
    weights = np.linalg.norm(network.head_weight.astype(np.float64), axis=1)
    return float((weights * length + np.abs(network.head_bias)).max())


class NarrowWriter(Writer):
    """The steps that need other operators when there are only 32 bits."""

    logit_kind: ClassVar[type] = np.int32

    def embed(self) -> str:
        """Patches to tokens: products with digits of the weights, then carries, then the shift."""
        g, network, config = self.graph, self.network, self.network.config
        side, grid = config.patch_size, config.grid
        patches = g.transpose(g.reshape(IMAGES, 0, grid, side, grid, side, 3), 0, 1, 3, 2, 4, 5)
        patches = g.reshape(patches, 0, grid * grid, side * side * 3)
        bits = _digit_bits(255 * side * side * 3)
        shift = network.patch_shift.astype(np.int64)
        high, low, low_bits = self._carried(patches, _digits(network.patch_weight.T, bits), bits, shift)
        # high 2**low_bits + low is shifted down. What is far beyond the stream may be cut before.
        up, down = np.maximum(low_bits - shift, 0), np.maximum(shift - low_bits, 0)
        limit = np.exp2(30.0 - up).astype(FLOAT)
        high = g.add("Floor", g.add("Mul", high, np.exp2(-down).astype(FLOAT)))
        high = g.cast(g.add("Min", g.add("Max", high, -limit), limit), INT)
        low = g.cast(g.add("Floor", g.add("Mul", low, np.exp2(-shift).astype(FLOAT))), INT)
        moved = g.add("Add", g.add("Mul", high, (np.int64(1) << up).astype(INT)), low)
        return self._with_class_token(self._saturate(g.add("Add", moved, network.position[1:].astype(INT)), INT))

    def _carried(self, patches: str, weights: list[Any], bits: int, shift: Any) -> tuple[str, str, int]:
        """The products, and half of 2**shift for the rounding, as high 2**k + low with 0 <= low < 2**k; and k."""
        g = self.graph
        half = np.where(shift > 0, np.int64(1) << np.maximum(shift - 1, 0), 0)
        carry, lows = "", []
        for place, weight in enumerate(weights[:-1]):
            total = self._digit_product(patches, weight, (half >> (bits * place)) % (1 << bits), carry)
            carry = g.add("Floor", g.add("Mul", total, FLOAT(2.0**-bits)))
            digit = g.add("Sub", total, g.add("Mul", carry, FLOAT(1 << bits)))
            lows.append(g.add("Mul", digit, FLOAT(1 << (bits * place))))
        low_bits = bits * (len(weights) - 1)
        return self._digit_product(patches, weights[-1], half >> low_bits, carry), g.add("Sum", *lows), low_bits

    def _digit_product(self, patches: str, weight: Any, added: Any, carry: str) -> str:
        g = self.graph
        total = g.cast(g.add("MatMulInteger", patches, weight.astype(np.int8)), FLOAT)
        total = g.add("Add", total, added.astype(FLOAT))
        return g.add("Add", total, carry) if carry else total

    def classify(self, stream: str) -> None:
        """Logits from digits of token and weights. int32 wraps around, so only the whole sum must fit."""
        g, network, config = self.graph, self.network, self.network.config
        first, end = (1, config.tokens) if config.mean_pooling else (0, 1)
        pooled = g.add("Slice", stream, *map(np.array, ([first], [end], [1])))
        if config.mean_pooling:
            pooled, _ = self._mean(pooled, 1, config.tokens - 1)
        token = self._pooled_token(pooled)
        high = g.add("Floor", g.add("Mul", token, FLOAT(2.0**-8)))
        low = g.add("Sub", token, g.add("Mul", high, FLOAT(2.0**8)))
        bits = _digit_bits(256 * config.width)
        total: Any = network.head_bias.astype(INT)
        for place, weight in enumerate(_digits(network.head_weight.T, bits)):
            for part, power in ((low, 0), (high, 8)):
                product = g.cast(g.add("MatMul", part, weight.astype(FLOAT)), INT)
                total = g.add("Add", total, g.add("Mul", product, INT(1 << (bits * place + power))))
        logits = g.call(g.reshape(total, 0, config.classes), INTEGER_LOGITS)
        unit = FLOAT(2.0 ** -(arithmetic.POOLED_BITS + network.head_exponent))
        g.call(g.add("Mul", g.cast(logits, FLOAT), unit), LOGITS)

    def _affine(self, x: str, scale: Any, shift: Any) -> str:
        """The maximum changes nothing and stands between product and sum, so that they are not contracted."""
        product = self.graph.add("Max", self.graph.add("Mul", x, scale), arithmetic.LOWEST)
        return self.graph.add("Add", product, shift)

    def _saturate(self, stream: str, kind: Any) -> str:
        limit = arithmetic.STREAM_LIMIT
        return self.graph.add("Min", self.graph.add("Max", stream, kind(-limit)), kind(limit - 1))

    def _standardise(self, stream: str) -> str:
        """LayerNorm without gain and shift of int32 (B, N, D), from the terms of sum c^2 - rest^2 / D + D eps."""
        g, width = self.graph, self.network.config.width
        mean, rest = self._mean(stream, -1, width)
        centred = g.add("Sub", stream, mean)
        real = g.cast(centred, FLOAT)
        terms = self._squares(centred, real)
        # rest^2 / D as a whole number, a fraction of 12 bits, and what is left.
        whole, left = self._quotient(g.add("Mul", rest, rest), width)
        fraction = g.add("Mul", g.add("Floor", g.add("Mul", left, FLOAT(4096 / width))), FLOAT(1 / 4096))
        small = g.add("Mul", g.add("Sub", left, g.add("Mul", fraction, FLOAT(width))), FLOAT(1 / width))
        corrections = g.add("Neg", g.add("Concat", whole, fraction, small, axis=-1))
        eps = width * self.network.eps
        constant = np.array([FLOAT(eps), FLOAT(eps - float(FLOAT(eps)))], dtype=FLOAT)
        constants = g.add("Add", g.add("Mul", rest, FLOAT(0)), constant)
        total = self._pair(g.add("Concat", terms, corrections, constants, axis=-1))
        return g.add("Mul", real, self._root(*total))

    def _mean(self, x: str, axis: int, count: int) -> tuple[str, str]:
        """The nearest integer to the mean of int32 values (int32), and the sum less `count` times it (float32)."""
        g = self.graph
        high = g.add("Floor", g.add("Mul", g.cast(x, FLOAT), FLOAT(2.0**-HALF_BITS)))
        low = g.add("Sub", x, g.add("Mul", g.cast(high, INT), INT(1 << HALF_BITS)))
        high, low = g.sum(high, axis), g.sum(g.cast(low, FLOAT), axis)
        upper, left = self._quotient(high, count)
        total = g.add("Add", g.add("Mul", left, FLOAT(1 << HALF_BITS)), low)
        lower, rest = self._quotient(g.add("Add", total, FLOAT(count // 2)), count)
        mean = g.add("Add", g.add("Mul", g.cast(upper, INT), INT(1 << HALF_BITS)), g.cast(lower, INT))
        return mean, g.add("Sub", rest, FLOAT(count // 2))

    def _quotient(self, value: str, count: int) -> tuple[str, str]:
        """floor(value / count) and the remainder of whole numbers up to 2**24: a guess, then what it is off by."""
        g, divisor, inverse = self.graph, FLOAT(count), FLOAT(1 / count)
        guess = g.add("Floor", g.add("Mul", value, inverse))
        left = g.add("Sub", value, g.add("Mul", guess, divisor))
        more = g.add("Floor", g.add("Mul", g.add("Add", left, FLOAT(0.5)), inverse))
        return g.add("Add", guess, more), g.add("Sub", left, g.add("Mul", more, divisor))

    def _squares(self, centred: str, real: str) -> str:
        """The sum of c^2 as terms (B, N, 7), exact, one for each power of two: digits, and sums of their products."""
        g = self.graph
        high = g.add("Round", g.add("Mul", real, FLOAT(2.0 ** -(2 * DIGIT_BITS))))
        low = g.cast(g.add("Sub", centred, g.add("Mul", g.cast(high, INT), INT(1 << (2 * DIGIT_BITS)))), FLOAT)
        digits = []
        for part in (high, low):
            upper = g.add("Round", g.add("Mul", part, FLOAT(2.0**-DIGIT_BITS)))
            digits += [upper, g.add("Sub", part, g.add("Mul", upper, FLOAT(1 << DIGIT_BITS)))]
        left = g.add("Concat", *(g.add("Unsqueeze", digit, np.array([-2])) for digit in digits), axis=-2)
        products = g.add("MatMul", left, g.transpose(left, 0, 1, 3, 2))
        gather = np.zeros((DIGITS, DIGITS, 2 * DIGITS - 1), dtype=FLOAT)
        for i in range(DIGITS):
            for j in range(DIGITS):
                gather[i, j, i + j] = 2.0 ** (DIGIT_BITS * (2 * (DIGITS - 1) - i - j))
        flat = g.reshape(products, 0, 0, DIGITS * DIGITS)
        return g.add("MatMul", flat, gather.reshape(DIGITS * DIGITS, -1))

    def _pair(self, terms: str) -> tuple[str, str]:
        """The sum of terms (..., K) as two float32: rounded to a coarse grid, sums are exact; so is the next finer one.

        x + grid - grid is x rounded to the last place of the grid.
        """
        g = self.graph
        size = g.add("Mul", g.sum(g.add("Abs", terms)), FLOAT(64))
        parts = []
        for grid in (size, g.add("Mul", size, FLOAT(2.0**-19))):
            coarse = g.add("Sub", g.add("Add", terms, grid), grid)
            parts.append(g.sum(coarse))
            terms = g.add("Sub", terms, coarse)
        total = g.add("Add", parts[0], parts[1])
        behind = g.add("Sub", parts[1], g.add("Sub", total, parts[0]))
        return total, g.add("Add", behind, g.sum(terms))

    def _root(self, total: str, behind: str) -> str:
        """sqrt(D / (total + behind)): a guess r, and one step of Newton's with the exact error of r^2 total."""
        g, width = self.graph, FLOAT(self.network.config.width)
        guess = g.add("Div", FLOAT(1), g.add("Sqrt", g.add("Mul", total, FLOAT(1 / width))))
        product, product_error = self._product(guess, total)
        square, square_error = self._product(guess, product)
        error = g.add("Sub", g.add("Sub", width, square), square_error)
        error = g.add("Sub", error, g.add("Mul", guess, g.add("Add", product_error, g.add("Mul", guess, behind))))
        error = g.add("Mul", error, FLOAT(1 / width))
        step = g.add("Mul", error, g.add("Add", g.add("Mul", error, FLOAT(0.375)), FLOAT(0.5)))
        return g.add("Add", guess, g.add("Mul", guess, step))

    def _product(self, x: str, y: str) -> tuple[str, str]:
        """fl(x y), and the error of its rounding, from products of 12 bits."""
        g = self.graph
        product = g.add("Mul", x, y)
        (x_high, x_low), (y_high, y_low) = self._split(x), self._split(y)
        error = g.add("Sub", g.add("Mul", x_high, y_high), product)
        for left, right in ((x_high, y_low), (x_low, y_high), (x_low, y_low)):
            error = g.add("Add", error, g.add("Mul", left, right))
        return product, error

    def _split(self, x: str) -> tuple[str, str]:
        g = self.graph
        scaled = g.add("Mul", x, SPLITTER)
        high = g.add("Sub", scaled, g.add("Sub", scaled, x))
        return high, g.add("Sub", x, high)


def _digit_bits(sum_of_factors: int) -> int:
    """The most bits of a signed digit whose products with factors of this sum stay exact in float32; at most 7."""
    bits = DIGIT_BITS
    while sum_of_factors << (bits - 1) > arithmetic.EXACT_FLOAT32 // 2:
        bits -= 1
    return bits


def _digits(weight: Any, bits: int) -> list[Any]:
    """16-bit integers as signed digits, the lowest first."""
    left, found = weight.astype(np.int64), []
    for _ in range(-(-17 // bits) - 1):
        digit = ((left + (1 << (bits - 1))) & ((1 << bits) - 1)) - (1 << (bits - 1))
        found.append(digit)
        left = (left - digit) >> bits
    return [*found, left]

"""Write what follows from the schema of deployed networks, csrc/runtime/schema.inc, and make the tables of its page.

The fields are in src/lapis/deploy/schema.py, the rules for readers in csrc/runtime/rules.inc. A test compares the file
with what this tool would write.

    python tools/schema.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from lapis import codes, config, preprocess
from lapis._util import files
from lapis.deploy import arithmetic, leak, schema
from lapis.deploy.schema import Field, Tensor
from lapis.relations import rule_of

ROOT = Path(__file__).resolve().parents[1]
INC, RULES = (ROOT / "csrc/runtime" / name for name in ("schema.inc", "rules.inc"))
MACROS = ("LIMIT", "REAL_LIMIT", "KIND", "POINT", "CODING", "FIELD", "INTEGER", "WORD", "CHOICES", "NUMBERS", "TENSOR")
# The constants that C takes from Python, by their names there.
LIMITS = {
    files: "MAX_DIGITS",
    codes: "MAX_WINDOW",
    config: "AFFINITY_BITS NORM_EPS",
    preprocess: "MAX_PIXELS MAX_ASPECT",
    arithmetic: "EXACT_FLOAT32 MAX_WIDTH POOLED_BITS STREAM_BITS",
    leak: "MANTISSA_BITS MAX_SHIFT START_EXPONENT MAX_GAINS",
    schema: "VERSION LENGTH_BYTES MAX_HEADER MAX_BLOCKS MAX_MLP_RATIO MAX_CLASSES MAX_CLASS_NAME PACKED_BITS "
    "MAX_MAGNITUDE DELTA_LIMIT LONGEST_DELAY MAX_CODE_DISTANCE MAX_DOT_DISTANCE FREE_ENTRIES ENTRIES_PER_BYTE",
}
OPENING = """/* Written by tools/schema.py from src/lapis/deploy/schema.py; do not edit.
 *
 * Whoever includes this file defines some of its macros, which are undefined again at the end:
 *   LIMIT(name, value), REAL_LIMIT(name, value)
 *   KIND(name, bytes)                                  of items of tensors
 *   POINT(index, name)                                a measuring point; q and k are one
 *   CODING(word)
 *   FIELD(object, name, required)
 *   INTEGER(object, name, low, high, rule of another type, rule of another value)
 *   WORD(object, name, rule of another type, rule of another word, words...)
 *   CHOICES(name, index of each word...)
 *   NUMBERS(name, count, low, high, rule)              of the preprocessing
 *   TENSOR(index, name, kind, whether network h has it, of a block, sides, sides..., low, high, rule); any value where
 *     low > high */
/* clang-format off */
"""


def c_schema() -> str:
    """The content of csrc/runtime/schema.inc."""
    lines = [OPENING]
    lines += [f"#ifndef {macro}\n#define {macro}(...)\n#endif" for macro in MACROS]
    for module, names in LIMITS.items():
        for name, value in ((name, getattr(module, name)) for name in names.split()):
            lines.append(f"{'REAL_' * isinstance(value, float)}LIMIT({name}, {value})")
    lines += [f"KIND({name}, {kind.itemsize})" for kind, name in schema.DTYPES.items()]
    lines += [f'POINT(AT_{point.upper()}, "{point}")' for point in schema.POINT_FIELDS]
    lines += [f'CODING("{word}")' for word in schema.BY_PATH["config.coding.qk"].words]
    for field in schema.FIELDS:
        lines += _c_field(field)
    lines += [_c_tensor(tensor) for tensor in schema.TENSORS]
    lines += [f"#undef {macro}" for macro in MACROS]
    return "\n".join([*lines, "/* clang-format on */", ""])


def _c_field(field: Field) -> Iterator[str]:
    place, (typed, ranged) = f"{_object(field.parent)}, {field.name}", field.rules
    if field.parent not in ("config.coding", "config.min_code"):
        yield f'FIELD({_object(field.parent)}, "{field.name}", {int(not field.optional)})'
    if field.kind == "integer":
        yield f"INTEGER({place}, {field.low}, {field.high}, {typed}, {ranged})"
    elif field.kind == "word" and field.parent != "config.coding":
        words = ", ".join(map('"{}"'.format, field.words))
        yield f"WORD({place}, {typed}, {ranged}, {words})"
        yield f"CHOICES({field.name}, {', '.join(f'{field.name}_{word}'.upper() for word in field.words)})"
    elif field.kind in ("number", "triple"):
        yield f"NUMBERS({field.name}, {3 if field.kind == 'triple' else 1}, {field.low}, {field.high}, {ranged})"


def _object(path: str) -> str:
    return f"IN_{path.rpartition('.')[2].upper() or 'DESCRIPTION'}"


def _c_tensor(tensor: Tensor) -> str:
    sides = [schema.SIDES[side].c for side in tensor.shape]
    index = tensor.name.removeprefix("blocks.").replace(".", "_").upper()
    kind = "WEIGHT" if tensor.is_weight else schema.DTYPES[tensor.dtype]
    name, words = _owners(tensor)
    only = " || ".join(f"h->{name} == {name.upper()}_{word.upper()}" for word in words) if tensor.only else "1"
    values = "1, 0" if tensor.low is None else f"INT64_C({tensor.low}), INT64_C({tensor.high})"
    return (
        f'TENSOR({index}, "{tensor.name}", {kind}, {only}, {int(tensor.of_block)}, '
        f"{len(sides)}, {', '.join([*sides, '0', '0'][:2])}, {values}, {tensor.rule})"
    )


def _owners(tensor: Tensor) -> tuple[str, list[str]]:
    """The field that decides whether a network has a tensor, and its words with which it has."""
    relations = [word for word in schema.BY_PATH["config.relation"].words if rule_of(word).stored == tensor.only]
    return ("relation", relations) if relations else ("style", [tensor.only])


def rules() -> list[tuple[int, str, str]]:
    """The rules for readers: number, what is rejected, and why."""
    found = re.findall(r'^RULE\((\d+), "((?:[^"\\]|\\.)*)",\s*"((?:[^"\\]|\\.)*)"\)$', RULES.read_text(), re.MULTILINE)
    return [(int(number), *(text.replace('\\"', '"') for text in texts)) for number, *texts in found]


def with_tables(text: str) -> str:
    """The text of docs/format.md with its tables, each in the place of its mark."""
    for name, rows in {
        "description": _field_rows(""),
        "config": _field_rows("config"),
        "preprocess": _field_rows("preprocess"),
        "tensors": _tensor_rows(),
        "rules": _rule_rows(),
    }.items():
        before, after = text.split(f"<!-- table: {name} -->")
        text = before + "\n".join(rows) + after
    return text


def _field_rows(parent: str) -> Iterator[str]:
    yield "| field | type | range | meaning |"
    yield "|---|---|---|---|"
    for field in schema.FIELDS:
        if field.parent == parent or (parent and field.parent.startswith(f"{parent}.")):
            name = field.path.removeprefix(f"{parent}.") if parent else field.path
            optional = " (optional)" if field.optional else ""
            yield f"| `{name}`{optional} | {_type(field)} | {_range(field)} | {field.meaning} |"


def _type(field: Field) -> str:
    names = {"triple": "list of 3 numbers", "word": "string", "names": "list of strings", "shares": "object"}
    return {**names, "codes": "integer, or list of L integers"}.get(field.kind, field.kind)


def _range(field: Field) -> str:
    words = ", ".join(f"`{word}`" for word in field.words)
    if field.kind in ("integer", "number", "triple") and field.note != "S":
        words = f"{field.low}..{field.high}" if field.low != field.high else f"{field.low}"
    if field.kind == "object":
        words = "[below](#configuration)" if field.path == "config" else "the six fields below"
        words = "[below](#preprocessing-fields)" if field.path == "preprocess" else words
    return ", ".join(part for part in (words, field.note) if part)


def _tensor_rows() -> Iterator[str]:
    yield "| name | type and shape | values | only where | meaning |"
    yield "|---|---|---|---|---|"
    for tensor in schema.TENSORS:
        kind = "weight" if tensor.is_weight else schema.DTYPES[tensor.dtype]
        sides = ["L"] * tensor.of_block + [schema.SIDES[side].docs or side for side in tensor.shape]
        values = "" if tensor.low is None or tensor.high is None else f"{_power(tensor.low)}..{_power(tensor.high)}"
        told = ", ".join(part for part in (values, tensor.note) if part) or "any"
        name, words = _owners(tensor)
        where = f"`{name}` is {' or '.join(f'`{word}`' for word in words)}" if tensor.only else ""
        yield f"| `{tensor.name}` | {kind} [{', '.join(sides)}] | {told} | {where} | {tensor.meaning} |"


def _power(number: int) -> str:
    """A number, as a power of two where it is a large one or its neighbour."""
    for offset, tail in ((0, ""), (1, " - 1")):
        size = abs(number) + offset
        if size >= 1 << 20 and size & (size - 1) == 0:
            power = f"2^{size.bit_length() - 1}{tail}"
            return power if number >= 0 else f"-({power})" if tail else f"-{power}"
    return str(number)


def _rule_rows() -> Iterable[str]:
    yield "| rule | reject if | because |"
    yield "|---|---|---|"
    for number, what, why in rules():
        yield (
            f"| {number} | {what} | {why} |".replace("|scale|", "\\|scale\\|")
            .replace("|shift|", "\\|shift\\|")
            .replace("|gain|", "\\|gain\\|")
        )


if __name__ == "__main__":
    files.write_text(INC, c_schema())

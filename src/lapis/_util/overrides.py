"""`key=value` settings of the command line, checked by type and applied to frozen, possibly nested, records."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Sequence
from typing import Any, Literal, TypeVar, get_args, get_origin

from lapis.config import Coding, CodingByPoint, nearest
from lapis.errors import LapisError

Record = TypeVar("Record")


def apply(record: Record, settings: Sequence[str]) -> Record:
    """A copy with all `a.b=c` settings applied; the last value of a key counts. Errors name the nearest known key."""
    changes: dict[str, Any] = {}
    for key, text in split_pairs(settings, "--set").items():
        _place(record, key, text, key, changes)
    changed: Record = _changed(record, changes)
    return changed


def split_pairs(words: Sequence[str], option: str) -> dict[str, str]:
    """The values of a repeated `NAME=VALUE` option by name; the last value of a name counts."""
    found = {}
    for word in words:
        name, equals, value = (part.strip() for part in word.partition("="))
        if not (name and equals):
            raise LapisError(f"{option} {word!r} is not NAME=VALUE; for example --set optim.lr=1e-4")
        found[name] = value
    return found


def keys(record: Any, prefix: str = "") -> dict[str, Any]:
    """Every dotted key of a record with its value."""
    found: dict[str, Any] = {}
    for item in dataclasses.fields(record):
        value = getattr(record, item.name)
        if dataclasses.is_dataclass(value):
            found |= keys(value, f"{prefix}{item.name}.")
        else:
            found[prefix + item.name] = value
    return found


def check_range(
    section: str, record: Any, names: Sequence[str], low: float, high: float = math.inf, above: bool = False
) -> None:
    """Refuse numbers of a section of settings outside low..high; with `above`, `low` itself is refused too."""
    for name in names:
        value = getattr(record, name)
        if not low <= value <= high or (above and value == low):
            least = f"be above {low:g}" if above else f"be at least {low:g}"
            raise LapisError(
                f"{section}.{name}={value} must {least}{'' if high == math.inf else f' and at most {high:g}'}"
            )


def _place(record: Any, key: str, text: str, whole: str, changes: dict[str, Any]) -> None:
    """Parse one setting into the nested table `changes`."""
    name, _, rest = key.partition(".")
    kinds = typing.get_type_hints(type(record))
    if name not in kinds or name == "name":
        raise _unknown(record, whole, key)
    value = getattr(record, name)
    if rest:
        if not dataclasses.is_dataclass(value):
            raise _unknown(record, whole, key)
        _place(value, rest, text, whole, changes.setdefault(name, {}))
    elif isinstance(value, CodingByPoint) and text in get_args(Coding):
        changes[name] = dataclasses.asdict(CodingByPoint.all(typing.cast(Coding, text)))
    elif dataclasses.is_dataclass(value):
        inner = [f"{whole}.{inner}" for inner in keys(value)]
        raise LapisError(f"{whole} is a group; set one of {', '.join(inner)}")
    else:
        changes[name] = _parse(whole, kinds[name], text)


def _changed(record: Any, changes: dict[str, Any]) -> Any:
    """A copy built once from all changes, so that only the final result must be valid."""
    values = {
        name: _changed(getattr(record, name), value) if isinstance(value, dict) else value
        for name, value in changes.items()
    }
    return dataclasses.replace(record, **values)


def _unknown(record: Any, whole: str, rest: str) -> LapisError:
    prefix = whole.removesuffix(rest)
    allowed = [prefix + inner for inner in keys(record) if inner != "name"]
    shown = ", ".join(allowed if len(allowed) <= 12 else sorted({entry.split(".")[0] for entry in allowed}))
    return LapisError(f"unknown setting {whole!r}; {nearest(whole, allowed)}known here: {shown}")


def _parse(key: str, kind: Any, text: str) -> Any:
    if get_origin(kind) is Literal and text not in get_args(kind):
        raise LapisError(f"{key}={text!r} is unknown; use {', '.join(get_args(kind))}")
    try:
        if kind is bool:
            return {"true": True, "false": False, "1": True, "0": False}[text.lower()]
        if kind == int | tuple[int, ...] and "," not in text:
            return int(text)
        if get_origin(kind) is tuple or kind == int | tuple[int, ...]:
            return tuple(int(part) for part in text.strip("()[]").split(",") if part.strip())
        return kind(text) if kind in (int, float) else text
    except (ValueError, KeyError):
        wanted = getattr(kind, "__name__", "") if kind in (int, float, bool) else "numbers separated by commas"
        raise LapisError(f"{key}={text!r} is not of the right kind; expected {wanted}") from None

"""Fields of the JSON files that people write for `lapis energy`: each is checked, and errors say what is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from lapis.config import nearest
from lapis.errors import LapisError

# What a value must be, and how an error says so.
Check = tuple[Callable[[Any], bool], str]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


TEXT: Check = (lambda value: isinstance(value, str) and bool(value.strip()), "text")
NUMBER: Check = (_is_number, "a finite number, 0 or more")
POSITIVE: Check = (lambda value: _is_number(value) and value > 0, "a finite number above 0")
SHARE: Check = (lambda value: _is_number(value) and value <= 1, "a share of values, from 0 to 1")
WHOLE: Check = (lambda value: type(value) is int and value >= 1, "a whole number, 1 or more")
COUNT: Check = (lambda value: type(value) is int and value >= 0, "a whole number, 0 or more")
TABLE: Check = (lambda value: isinstance(value, dict), "a table")
LIST: Check = (lambda value: isinstance(value, list), "a list")


def among(words: tuple[Any, ...]) -> Check:
    """One of some values."""
    return (lambda value: value in words), f"one of {', '.join(map(str, words))}"


def checked(value: Any, check: Check, where: str) -> Any:
    """The value, if it is what it must be."""
    if not check[0](value):
        raise LapisError(f"{where}={value!r} must be {check[1]}")
    return value


def read_fields(
    entry: Any, needed: Mapping[str, Check], where: str, optional: Mapping[str, Check] | None = None
) -> dict[str, Any]:
    """The fields of a table, all of `needed`, any of `optional` and no others."""
    known = needed | (optional or {})  # type: ignore[operator]
    if not isinstance(entry, dict) or needed.keys() - entry.keys():
        found = ", ".join(sorted(entry)) if isinstance(entry, dict) else type(entry).__name__
        raise LapisError(f"{where} holds {found or 'nothing'}; it needs {', '.join(needed)}")
    for name, value in entry.items():
        if name not in known:
            raise LapisError(f"{where} has an unknown field {name!r}; {nearest(name, known)}use {', '.join(known)}")
        checked(value, known[name], f"{where}: {name}")
    return entry

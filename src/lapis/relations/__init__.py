"""The relations that a configuration may name: the built-in ones, and those that other packages add.

A package adds one by calling `lapis.nn.register_relation` when it is imported. If it also names that module as an entry
point of the group `lapis.relations`, under the relation's name, every command knows the relation without an import.
"""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from typing import Any

from lapis.errors import LapisError
from lapis.relations.coded_dot import CodedDotRule
from lapis.relations.dot import DotRule
from lapis.relations.eco import EcoRule
from lapis.relations.esdsa import EsdsaRule
from lapis.relations.gaussian import GaussianRule
from lapis.relations.hamming import HammingRule
from lapis.relations.laplacian import LaplacianRule
from lapis.relations.laplacian2 import Laplacian2Rule
from lapis.relations.qkformer import QkFormerRule
from lapis.relations.rule import Rule
from lapis.relations.sdsa import SdsaRule
from lapis.relations.shift_softmax import ShiftSoftmaxRule
from lapis.relations.sign_keys import SignKeysRule
from lapis.relations.ssa import SsaRule
from lapis.relations.statten import StattenRule
from lapis.relations.table import PackedTableRule, TableRule
from lapis.relations.xnor import XnorRule

__all__ = ["PACKED", "Rule", "TableRule", "names", "register", "rule_of"]

ENTRY_POINTS = "lapis.relations"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        LaplacianRule("laplacian"),
        DotRule("dot"),
        GaussianRule("gaussian"),
        HammingRule("hamming"),
        Laplacian2Rule("laplacian2"),
        SsaRule("ssa"),
        XnorRule("xnor"),
        EcoRule("eco"),
        SignKeysRule("sign_keys"),
        EsdsaRule("esdsa"),
        ShiftSoftmaxRule("shift_softmax"),
        SdsaRule("sdsa"),
        QkFormerRule("qkformer"),
        CodedDotRule("coded_dot"),
        StattenRule("statten"),
        PackedTableRule("table"),
    )
}
# What a packed file may name: nothing that another package would have to be imported for.
PACKED = tuple(name for name, rule in _RULES.items() if rule.stored is not None and rule.packed_name == name)


def register(rule: Rule) -> None:
    """Make a relation known by the name of its rule; `lapis.nn.register_relation` calls this."""
    if not isinstance(rule.name, str) or not _NAME.fullmatch(rule.name):
        raise LapisError(f"{rule.name!r} cannot name a relation; use lower-case letters, digits and underscores")
    known = _RULES.get(rule.name)
    # A module that is reloaded, as in a notebook, defines its rule anew.
    if known is not None and _place(known) != _place(rule):
        raise LapisError(f"a relation {rule.name!r} is already registered, with {_place(known)}; choose another name")
    _RULES[rule.name] = rule


def rule_of(name: Any) -> Rule:
    """The rule of a relation; the module of an installed package that offers the name is imported first."""
    if isinstance(name, str) and name not in _RULES:
        for offered in entry_points(group=ENTRY_POINTS, name=name):
            try:
                offered.load()
            except Exception as error:  # another package's module may raise anything
                raise LapisError(f"relation={name!r}: {offered.value} cannot be imported: {error}") from error
    if not isinstance(name, str) or name not in _RULES:
        *rest, last = names()
        raise LapisError(
            f"relation={name!r} is unknown; use {', '.join(rest)} or {last}, "
            "or import the package that registers it with lapis.nn.register_relation"
        )
    return _RULES[name]


def names() -> list[str]:
    """Every relation that can be trained: the built-in ones first, then those of other packages."""
    offered = (point.name for point in entry_points(group=ENTRY_POINTS))
    known = (name for name, rule in _RULES.items() if rule.trained)
    return list(dict.fromkeys((*known, *sorted(offered))))


def _place(rule: Rule) -> str:
    return f"{type(rule).__module__}.{type(rule).__qualname__}"

"""The relations that a network can be trained with, and `register_relation`, which adds one of your own.

What is exported here, `lapis.relations` and `lapis.ops` are all that a relation of another package needs.
"""

from __future__ import annotations

from lapis import relations
from lapis.config import LapisConfig
from lapis.errors import LapisError
from lapis.nn.relations.base import DotProduct, Mixer, Pairwise, Relation
from lapis.nn.relations.distance import (
    CodeProduct,
    DistanceRelation,
    Gaussian,
    Hamming,
    Laplacian,
    TableRelation,
    with_tau,
)

__all__ = [
    "DistanceRelation",
    "DotProduct",
    "Mixer",
    "Pairwise",
    "Relation",
    "TableRelation",
    "make_relation",
    "register_relation",
    "with_tau",
]

_CLASSES: dict[str, type[Mixer]] = {
    "laplacian": Laplacian,
    "dot": CodeProduct,
    "gaussian": Gaussian,
    "hamming": Hamming,
}


def register_relation(name: str, relation: type[Mixer]) -> None:
    """Add a relation, so that `LapisConfig(relation=name)` is a network with it; call this where the class is defined.

    It trains, calibrates, evaluates, and takes part in `lapis energy`. A `TableRelation` is
    converted and packed as well.
    """
    if not (isinstance(relation, type) and issubclass(relation, Mixer)):
        raise LapisError(f"relation {name!r} is {relation!r}; register a subclass of lapis.nn.Relation")
    known = _CLASSES.get(name, relation)
    # A module that is reloaded, as in a notebook, defines its class anew.
    if (known.__module__, known.__qualname__) != (relation.__module__, relation.__qualname__):
        where = f"{known.__module__}.{known.__qualname__}"
        raise LapisError(f"a relation {name!r} is already registered, {where}; choose another name")
    relations.register(relation.rule(name))
    _CLASSES[name] = relation


def make_relation(config: LapisConfig, block: int) -> Mixer:
    """The module of a configuration's relation in one block."""
    relations.rule_of(config.relation)
    if config.relation not in _CLASSES:
        raise LapisError(
            f"relation={config.relation!r} exists in packed files only, which hold its affinities and not what they "
            "were trained as; start from the checkpoint that was packed"
        )
    return _CLASSES[config.relation].for_block(config, block)

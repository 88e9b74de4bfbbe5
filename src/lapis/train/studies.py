"""The studies of `lapis ablate`: which variants of a recipe are compared, and what the paper found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from lapis import relations
from lapis.config import Coding, CodingByPoint, LapisConfig, nearest
from lapis.errors import LapisError
from lapis.nn.lift import LOWERED
from lapis.train import recipes
from lapis.train.recipe import DRIVING, Recipe

Settings = Sequence[str]


@dataclass(frozen=True)
class Variant:
    """One row: a recipe, and the variant whose trained network it starts from, if any."""

    name: str
    recipe: Recipe
    after: str | None = None


@dataclass(frozen=True)
class Study:
    """A comparison: its variants of a recipe, the recipe unless another is named, and the paper's accuracies.

    `drawn` says what accuracy is drawn against: energy, or activity and energy.
    """

    name: str
    variants: Callable[[str, Settings], list[Variant]]
    recipe: str = "cifar10_tiny"
    paper: dict[str, float] = field(default_factory=dict)
    drawn: Literal["energy", "spikes"] = "energy"


def study_named(name: str) -> Study:
    if name not in STUDIES:
        raise LapisError(f"unknown ablation {name!r}; {nearest(name, STUDIES)}use {', '.join(STUDIES)}")
    return STUDIES[name]


def variants(study: str, base: str | None = None, settings: Settings = ()) -> list[Variant]:
    """The variants of the recipe `base` in a study; `settings` apply to every one of them."""
    chosen = study_named(study)
    return chosen.variants(base or chosen.recipe, settings)


# What a row of the relation study is called whose queries and keys are drawn anew.
DRAWN = " drawn"


def _relation(base: str, settings: Settings) -> list[Variant]:
    """Every relation from the first weights as they are, then with queries and keys drawn anew.

    All answer from the mean of the patches: some rules give a class token nothing to read.
    """
    recipe = _stage(base, settings)
    model = recipe.model.replace(mean_pool=True)
    fitting = [name for name in relations.names() if _fits(name, model)]
    imported = [Variant(name, replace(recipe, model=model.replace(relation=name))) for name in fitting]
    drawn = [Variant(row.name + DRAWN, replace(row.recipe, draw_qk=True)) for row in imported]
    return [*imported, *drawn]


def _fits(relation: str, model: LapisConfig) -> bool:
    return relations.rule_of(relation).takes_positions or not model.relative_position


def chosen_variants(rows: list[Variant], names: str | None) -> list[Variant]:
    """The rows that `names`, separated by commas, asks for, in the order of the study; all without any."""
    if names is None:
        return rows
    asked, known = [name.strip() for name in names.split(",")], [row.name for row in rows]
    for name in asked:
        if name not in known:
            raise LapisError(f"unknown variant {name!r}; {nearest(name, known)}use {', '.join(known)}")
    missing = [row for row in rows if row.name in asked and row.after is not None and row.after not in asked]
    if missing:
        raise LapisError(f"{missing[0].name!r} starts from {missing[0].after!r}; ask for both")
    return [row for row in rows if row.name in asked]


def _deployment(base: str, settings: Settings) -> list[Variant]:
    """As in the paper, both recoveries start from the network with exact rows."""
    exact, pow2, w6 = (_stage(f"{base}{suffix}", settings) for suffix in ("", "_pow2", "_w6"))
    return [Variant("exact W32", exact), Variant("pow2 W32", pow2, "exact W32"), Variant("pow2 W6", w6, "exact W32")]


def _activation(base: str, settings: Settings) -> list[Variant]:
    recipe = _stage(base, settings)
    coding = {mode: recipe.model.replace(coding=CodingByPoint.all(mode)) for mode in get_args(Coding)}
    lifted = replace(recipe, model=coding["unsigned"], lift=True)
    return [*(Variant(mode, replace(recipe, model=model)) for mode, model in coding.items()), Variant("lifted", lifted)]


# Goals for the activity in front of the four layers with signed spikes, each rung starting from the one before. q and k
# have none: the relation compares them whether they fire or not, and with a goal their values grew to escape it until
# a fifth of the codes of a block stood at T. The last rung is what the paper's own energies imply.
LADDER: dict[str, dict[str, Any]] = {
    **{f"{goal:.2f}": dict.fromkeys(DRIVING, goal) for goal in (0.65, 0.55, 0.48, 0.40, 0.35)},
    "paper": {**dict.fromkeys(DRIVING, 0.31), "mlp_in": 0.21, "mlp_hidden": 0.10},
}


def _sparsity(base: str, settings: Settings) -> list[Variant]:
    recipe, names = _stage(base, settings), list(LADDER)
    first = recipe.sparsity
    # The axes are chosen once, before the first rung.
    return [
        Variant(name, replace(recipe, sparsity=replace(first, basis=first.basis and not after, **LADDER[name])), after)
        for name, after in zip(names, [None, *names[:-1]], strict=True)
    ]


# The one goal of all ways to be silent that are compared.
HALF: dict[str, Any] = dict.fromkeys(DRIVING, 0.5)


def _silence(base: str, settings: Settings) -> list[Variant]:
    """Ways to silence half of the neurons; the first is ours, the others are its controls."""
    recipe = _stage(base, settings)
    ours = replace(recipe, sparsity=replace(recipe.sparsity, **HALF))
    unsigned = replace(ours, model=ours.model.replace(coding=CodingByPoint.all("unsigned")))
    lowered = replace(recipe.sparsity, rule="lower", **{point: HALF[point] for point in LOWERED})
    return [
        Variant("signed", ours),
        Variant("turned", replace(ours, sparsity=replace(ours.sparsity, basis=True))),
        Variant("unsigned", unsigned),
        Variant("lifted", replace(unsigned, lift=True)),
        Variant("lowered", replace(unsigned, lift=True, sparsity=lowered)),
        Variant("top-k", replace(ours, sparsity=replace(ours.sparsity, rule="top_k"))),
        Variant("relu", replace(ours, model=ours.model.replace(activation="relu"))),
    ]


def _stage(name: str, settings: Settings) -> Recipe:
    return recipes.load(name).with_overrides(list(settings))


# Accuracies that the paper prints for its own networks (CIFAR-10 for relations, ImageNet for deployment).
STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        Study(
            "relation",
            _relation,
            paper={"dot": 97.09, "gaussian": 91.44, "hamming": 87.92, "laplacian": 96.56},
        ),
        Study("deployment", _deployment, paper={"exact W32": 83.70, "pow2 W32": 83.39, "pow2 W6": 83.25}),
        Study("activation", _activation),
        Study("sparsity", _sparsity, recipe="cifar10_tiny_sparse", drawn="spikes"),
        Study("silence", _silence, drawn="spikes"),
    )
}

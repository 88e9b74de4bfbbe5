"""Write README.md and a picture of every relation: python zoo/page.py.

Equations, labels and operations are read from the rules themselves (`lapis.relations`), so the page cannot differ from
what the energy model counts. What a picture compares is drawn here, for one channel of a query and a key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from lapis import relations
from lapis.config import CodingByPoint, LapisConfig, preset
from lapis.energy import CONVENTIONS, Activities, load_costs
from lapis.energy.operations import Mixing
from lapis.trace import POINTS
from lapis_zoo.rules import SystemRule

HERE = Path(__file__).resolve().parent
PAGE, PICTURES = HERE / "README.md", HERE / "images"

# The codes that are drawn, of T = 15: a query that spikes in step 6 and a key that spikes in step 10.
T, Q, K = 15, 9, 5
RATE = 0.5
QUERY, KEY, BOTH, QUIET, GREY = "#24679c", "#a34f1e", "#2c7a51", "#9fb0a6", "#7b8698"
CELL = 12
COSTS = {"compare": "#24679c", "weigh": "#a34f1e", "sum values": "#2c7a51"}
# Whose rules the core has.
CORE = {
    "laplacian": "Lapis", "dot": "dense transformers", "gaussian": "Lapis (ablation)", "hamming": "Lapis (ablation)",
}  # fmt: skip
STAGE = {"relation": "compare", "code sums": "compare", "value": "sum values", "value shift": "sum values"}


@dataclass(frozen=True)
class Drawing:
    """What a rule compares, drawn; its words; and the weight of a key k for the query Q, or what passes a gate."""

    compared: Callable[[], Iterator[str]]
    words: str
    weight: Callable[[float], float]
    axis: str = "weight of a key, by its code"
    # The block whose costs are drawn, for rules that differ between early and late blocks.
    block: int = 11


def config() -> LapisConfig:
    """lapis_tiny at 128 pixels with power-of-two rows, the network of the figures on the page."""
    coding = CodingByPoint(attention_in="signed", qk="signed", v="signed", readout="signed", mlp_in="signed")
    return preset("lapis_tiny", classes=10, image_size=128, row_scale="pow2", readout="spikes", coding=coding)


def _rect(x: float, y: float, fill: str, width: float = CELL - 2, height: float = CELL - 2, opacity: float = 1) -> str:
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="2" fill="{fill}" opacity="{opacity:g}"/>'
    )


def _text(x: float, y: float, words: str, fill: str = GREY, size: int = 12, anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="{fill}" font-size="{size}" text-anchor="{anchor}">{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, stroke: str = GREY, width: float = 1.5) -> str:
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{stroke}" stroke-width="{width:g}"/>'


def _latencies() -> Iterator[str]:
    """Two first spikes on the axis of time."""
    for row, (name, code, colour) in enumerate((("q", Q, QUERY), ("k", K, KEY))):
        y = 58 + 34 * row
        yield _text(18, y + 4, name, colour, 14)
        yield _line(34, y, 34 + T * CELL, y)
        x = 34 + (T - code) * CELL
        yield _line(x, y - 14, x, y + 4, colour, 4)
    yield _text(34 + T * CELL, 112, "time", GREY, 11, "end")


def _gap() -> Iterator[str]:
    yield from _latencies()
    left, right = 34 + (T - Q) * CELL, 34 + (T - K) * CELL
    yield _rect(left, 66, BOTH, right - left, 8)
    yield _text(18, 128, f"|q - k| = {Q - K}", BOTH)


def _square() -> Iterator[str]:
    yield from _latencies()
    left = 34 + (T - Q) * CELL
    for row in range(Q - K):
        yield from (_rect(left + CELL * column, 62 + 7 * row, BOTH, CELL - 2, 5) for column in range(Q - K))
    yield _text(18, 128, f"(q - k)^2 = {(Q - K) ** 2}", BOTH)


def _unequal() -> Iterator[str]:
    yield from _latencies()
    yield _text(18, 128, "equal or not: 1", BOTH)


def _trains(silence: bool = False, chunk: int = 0) -> Iterator[str]:
    """Two rate trains, a spike per step up to the code, and what they have in common."""
    for row, (name, code, colour) in enumerate((("q", Q, QUERY), ("k", K, KEY))):
        y = 44 + 18 * row
        yield _text(18, y + 10, name, colour, 14)
        yield from (_rect(34 + CELL * n, y, colour, opacity=1 if n < code else 0.15) for n in range(T))
    for n in range(T):
        if n < K:
            yield _rect(34 + CELL * n, 84, BOTH)
        elif silence and n >= Q:
            yield _rect(34 + CELL * n, 84, QUIET)
    for cut in range(chunk or T, T, chunk or T):
        yield _line(33 + CELL * cut, 36, 33 + CELL * cut, 98, GREY, 2)


def _common() -> Iterator[str]:
    yield from _trains()
    yield _text(34, 112, f"spikes in common: {K}", BOTH)


def _common_and_silent() -> Iterator[str]:
    yield from _trains(silence=True)
    yield _text(34, 112, f"spikes in common: {K}, silence: {T - Q}", BOTH)


def _chunks() -> Iterator[str]:
    yield from _trains(chunk=T // 3)
    yield _text(34, 112, "within a chunk of steps, any with any", BOTH)


def _area() -> Iterator[str]:
    """A product of two codes."""
    for row in range(K):
        yield from (_rect(34 + CELL * column, 44 + CELL * row, BOTH) for column in range(Q))
    yield _text(34 + CELL * Q / 2, 38, "q", QUERY, 14, "middle")
    yield _text(18, 44 + CELL * K / 2 + 4, "k", KEY, 14)
    yield _text(34, 122, f"q k = {Q * K}", BOTH)


def _sign() -> Iterator[str]:
    yield from (_rect(34 + CELL * column, 50, QUERY) for column in range(Q))
    yield _text(18, 60, "q", QUERY, 14)
    yield _text(18, 90, "k", KEY, 14)
    yield _text(34, 92, "+", KEY, 24)
    yield _text(56, 90, "or -", KEY, 14)
    yield _text(34, 122, f"sign(k) q = +{Q}", BOTH)


def _linear() -> Iterator[str]:
    for row in range(K):
        yield from (_rect(64 + CELL * column, 44 + CELL * row, BOTH) for column in range(7))
    yield _text(64 + CELL * 3.5, 38, "v", BOTH, 14, "middle")
    yield _text(48, 44 + CELL * K / 2 + 4, "k", KEY, 14)
    yield _text(18, 44 + CELL * K / 2 + 4, "q x", QUERY, 14)
    yield _text(18, 122, "k and v first, over all tokens; then q", BOTH)


def _column_gate() -> Iterator[str]:
    for row, code in enumerate((3, 5, 0, 4)):
        yield from (_rect(34 + CELL * n, 40 + 14 * row, BOTH, opacity=1 if n < code else 0.15) for n in range(6))
    yield _text(112, 66, "min(k, v), summed", BOTH)
    yield _text(112, 82, "over tokens: 12", BOTH)
    yield _text(18, 118, "enough? then q passes", QUERY)


def _row_gate() -> Iterator[str]:
    for channel, code in enumerate((9, 2, 5, 0, 7, 3)):
        yield _rect(34 + 16 * channel, 84 - 4 * code, QUERY, 12, 4 * code + 1)
    yield _text(140, 66, "q of a token,", QUERY)
    yield _text(140, 82, "over channels: 26", QUERY)
    yield _text(18, 118, "enough? then k of the token passes", KEY)


def _decay(k: float) -> float:
    return math.exp(-abs(Q - k) / 4)


def _shifted(score: float) -> float:
    """2^ceil of a score of 12 steps in all, as Sorbet has it."""
    return 2.0 ** math.ceil(score)


DRAWINGS = {
    "laplacian": Drawing(_gap, "how far apart two first spikes are", _decay),
    "dot": Drawing(_area, "the product of two values", lambda k: math.exp(Q * (k - T) / 40)),
    "gaussian": Drawing(_square, "the squared distance of two first spikes", lambda k: math.exp(-((Q - k) ** 2) / 16)),
    "hamming": Drawing(_unequal, "whether two first spikes fall together", lambda k: 1.0 if round(k) == Q else 0.4),
    "laplacian2": Drawing(
        _gap, "how far apart two first spikes are", lambda k: 2.0 ** -math.floor(abs(Q - k) / 3 + 0.5)
    ),
    "ssa": Drawing(_common, "in how many steps both trains spike", lambda k: min(Q, k) / Q),
    "xnor": Drawing(
        _common_and_silent, "steps in which both spike, or both do not",
        lambda k: (min(Q, k) + 0.5 * (T - max(Q, k))) / (Q + 0.5 * (T - Q)),
    ),
    "eco": Drawing(_gap, "how far apart two values are, fixed scale", lambda k: math.exp(-abs(Q - k) / 5)),
    "sign_keys": Drawing(_sign, "the query, added or subtracted", lambda k: math.exp((0 if k > 0 else -2 * Q) / 9)),
    "esdsa": Drawing(_linear, "products of codes, keys with values first", lambda k: k / T),
    "shift_softmax": Drawing(_area, "the product of two values", lambda k: _shifted(Q * (k - T) / 28)),
    "sdsa": Drawing(_column_gate, "whether keys and values spike together", lambda s: float(s >= 7),
                    "q passes, by the sum"),
    "qkformer": Drawing(_row_gate, "early blocks: the spikes of one query", lambda s: float(s >= 7),
                        "k passes, by the sum", 0),
    "coded_dot": Drawing(_area, "the product of two values", lambda k: round(15 * math.exp(Q * (k - T) / 40)) / 15),
    "statten": Drawing(_chunks, "spikes of a chunk of steps with each other",
                       lambda k: sum(min(5, max(0, Q - c)) * min(5, max(0, k - c)) for c in (0, 5, 10)) / 41),
}  # fmt: skip


def costs_of(name: str, convention: str, block: int) -> dict[str, float]:
    """Nanojoules of one block, for comparing, weighing and summing; half of all neurons fire."""
    network = config().replace(relation=name)
    mixing = Mixing(network, block, Activities.uniform(network, dict.fromkeys(POINTS, RATE)), CONVENTIONS[convention])
    costs, spent = load_costs(), dict.fromkeys(COSTS, 0.0)
    for row in relations.rule_of(name).operations(mixing):
        spent[STAGE.get(row.operator, "weigh")] += row.count * costs.price(row.kind, operands=row.operands) / 1e3
    return spent


def multiplies(name: str) -> bool:
    """Whether queries are multiplied with keys."""
    network = config().replace(relation=name)
    mixing = Mixing(network, 11, Activities.uniform(network, dict.fromkeys(POINTS, RATE)), CONVENTIONS["paper"])
    rows = relations.rule_of(name).operations(mixing)
    return any(row.operator == "relation" and row.kind in ("mac", "product") for row in rows)


def picture(name: str) -> str:
    """The SVG of one relation: what it compares, the weight that follows, what a block spends on it."""
    drawing, rule = DRAWINGS[name], relations.rule_of(name)
    summary = f"{name} compares {drawing.words}. {rule.equation}"
    body = [_text(18, 20, drawing.words, GREY, 13), *drawing.compared(), *_curve(drawing), *_bars(name)]
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 140" role="img" '
        "font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif\">\n"
        f"<title>{escape(name)}</title>\n<desc>{escape(summary)}</desc>\n" + "\n".join(body) + "\n</svg>\n"
    )


def _curve(drawing: Drawing) -> Iterator[str]:
    left, bottom, width, height = 310, 112, 150, 74
    yield _text(left, 20, drawing.axis, GREY, 12)
    yield _line(left, bottom, left + width, bottom)
    levels = [drawing.weight(n / 8) for n in range(8 * T + 1)]
    top = max(levels)
    points = " ".join(f"{left + width * n / (8 * T):.1f},{bottom - height * y / top:.1f}" for n, y in enumerate(levels))
    yield f'<polyline points="{points}" fill="none" stroke="{BOTH}" stroke-width="2.5"/>'
    yield _text(left, bottom + 16, "0", GREY, 11)
    yield _text(left + width, bottom + 16, str(T), GREY, 11, "end")
    if drawing.axis.startswith("weight"):
        across = left + width * Q / T
        yield _line(across, bottom, across, bottom - height, QUERY, 1)
        yield _text(across, bottom + 16, "q", QUERY, 12, "middle")


def _bars(name: str) -> Iterator[str]:
    left, longest = 590, 70.0
    spent = costs_of(name, "paper", DRAWINGS[name].block)
    yield _text(490, 20, "nJ per block (paper's convention)", GREY, 12)
    # All pictures have one scale, so that bars can be compared; the longest rule ends at the edge.
    scale = longest / max(max(costs_of(name, "paper", one.block).values()) for name, one in DRAWINGS.items())
    for row, (stage, colour) in enumerate(COSTS.items()):
        y = 36 + 24 * row
        yield _text(490, y + 11, stage, colour)
        yield _rect(left, y, colour, max(1.0, spent[stage] * scale), 14)
        yield _text(left + max(1.0, spent[stage] * scale) + 5, y + 11, f"{spent[stage]:,.0f}", colour)
    yield _text(490, 122, "q and k: multiplications" if multiplies(name) else "q and k: only additions", GREY)


HEAD = """\
# lapis-zoo: the attention of other spiking transformers

<!-- Written by zoo/page.py: change the rules, or the text in that script, and run `python zoo/page.py`. -->

    pip install ./zoo            # beside an installed Lapis; in a clone, `make test` sets it up

A relation says how queries weigh keys and values. Lapis has the paper's four. This package adds the rules of
ten other spiking transformers by the entry point `lapis.relations`, so that all can be trained on one backbone:
`LapisConfig(relation="ssa")`, or all together by `python research/ablate.py relation`. They have no deployed form.
`laplacian2`, the Laplacian in powers of two, is Lapis' own and is deployed as a table; it reached what the Laplacian
does, so the core has no form of its own for it.

The package is an example of a plug-in too: `lapis.nn`, `lapis.relations`, `lapis.ops`, `lapis.energy` and
`LapisConfig` are all that it imports ([how to write one](../docs/howto/relation.md)).

What is compared is *the rule, not the system*: every network here has LayerNorm, one learned ladder of `T` levels per
measuring point and the same schedule, and not the neurons over time, convolutional stems, hierarchies or hundreds of
epochs that the systems differ in. What they reached: [Results](../docs/results.md#relations).

Each picture shows, for one channel with the codes q = 9 and k = 5 of T = 15, what is compared; then the weight that a
key gets as its code changes; then what one block of `lapis_tiny` at 128 pixels spends on comparing queries and keys,
on making weights of it and on summing values, if half of all neurons fire. *Faithful*: the rule as its authors
compute it, on our codes. *Adapted*: changed as the text says. `D` is the l1 distance of codes, `|q|` the sum of
magnitudes, `g_h` a power of two per head that gives the readout the size that softmax attention has on the first
images.

| relation | system | label | multiplications | rows sum to one |{conventions}
|---|---|---|---|---|{rule}
{rows}

The last columns are mJ per image for comparing, weighing and summing in all blocks, under each
[convention](../docs/energy.md): among the rules that compare all pairs by additions, energy is nearly a tie. The
paper's convention does not charge a softmax; `full` charges every rule for its own. The rows `laplacian` and `dot` are
not on one footing: most conventions price `dot` as narrow integer products and l1 additions as floats; `deployed` is
the nearest to a like comparison, and [the control](../docs/results.md#what-the-l1-distance-buys-at-equal-everything)
has all else equal.
"""


def page() -> str:
    """The whole text of README.md."""
    known = [name for name in relations.names() if name in DRAWINGS]
    head = HEAD.format(
        conventions="".join(f" {name} |" for name in CONVENTIONS),
        rule="---|" * len(CONVENTIONS),
        rows="\n".join(_row(name) for name in known),
    )
    return head + "".join(_section(name) for name in known)


def source(name: str) -> tuple[str, str]:
    """The system that a rule comes from, and how close to its rule it is."""
    rule = relations.rule_of(name)
    if isinstance(rule, SystemRule):
        return rule.system, rule.origin
    return CORE[name], "paper"


def _row(name: str) -> str:
    rule, depth = relations.rule_of(name), config().depth
    spent = [
        sum(sum(costs_of(name, convention, block).values()) for block in range(depth)) / 1e6
        for convention in CONVENTIONS
    ]
    facts = (f"[`{name}`](#{name})", *source(name), "yes" if multiplies(name) else "no",
             "yes" if rule.normalised else "no", *(f"{millijoules:.4f}" for millijoules in spent))  # fmt: skip
    return "| " + " | ".join(facts) + " |"


def _section(name: str) -> str:
    rule = relations.rule_of(name)
    adapted = f" Adapted: {rule.adapted}." if isinstance(rule, SystemRule) and rule.adapted else ""
    return (
        f"\n## {name}\n{', '.join(source(name))}.{adapted}\n\n    {rule.equation}\n\n"
        f"![{name} compares {DRAWINGS[name].words}](images/{name}.svg)\n"
    )


def main() -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name in DRAWINGS:
        (PICTURES / f"{name}.svg").write_text(picture(name), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE}: {len(DRAWINGS)} relations")


if __name__ == "__main__":
    main()

"""Draw the figure of the README, docs/images/mechanism.svg: python docs/images/mechanism.py.

Every number in it is computed here from the codes of one query and three keys.
"""

from __future__ import annotations

from math import exp, log2
from pathlib import Path

import numpy as np

WINDOW, TAU = 5, 4.0
QUERY = np.array([5, 3, 0, 1])
KEYS = np.array([[4, 1, 0, 3], [5, 3, 0, 1], [4, 3, 0, 1]])
STYLE = """
  .back { fill: #ffffff; stroke: #d0d7de } .ink { fill: #1f2328 } .soft { fill: #59636e } .axis { stroke: #b0b8c0 }
  .q { fill: #0969da; stroke: #0969da } .k { fill: #bc4c00; stroke: #bc4c00 } .gap { fill: #8250df; stroke: #8250df }
  @media (prefers-color-scheme: dark) {
    .back { fill: #0d1117; stroke: #3d444d } .ink { fill: #f0f6fc } .soft { fill: #a3adb8 } .axis { stroke: #545d68 }
    .q { fill: #4493f8; stroke: #4493f8 } .k { fill: #f0883e; stroke: #f0883e } .gap { fill: #ab7df8; stroke: #ab7df8 }
  }
  text { font: 13px system-ui, sans-serif; stroke: none !important } .title { font-weight: 600; font-size: 14px }
  .small { font-size: 12px } .line { fill: none; stroke-width: 2.5 } .mark { stroke-width: 3.5 }"""
ALT = (
    "Two spike trains, query and key; the differences of their spike times add up to a distance of 5 steps; "
    "a membrane leaks for 5 steps; what is left, shifted by a power of two, is the attention weight."
)


def text(x: float, y: float, words: str, kind: str = "ink", anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{words}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" class="{kind}"/>'


def bar(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" class="{kind}" stroke="none"/>'


def spikes(left: float) -> list[str]:
    """One lane per channel, the query's spike above the lane and the key's below; code 0 is no spike."""
    parts = [text(left, 34, "1. When they spike", "ink title")]
    parts += [text(left, 56, "query", "q small"), text(left + 45, 56, "key", "k small")]
    for channel, (q, k) in enumerate(zip(QUERY, KEYS[0], strict=True)):
        y = 86 + 34 * channel
        parts.append(line(left, y, left + 160, y, "axis"))
        for code, kind, low, high in ((q, "q", -14, -1), (k, "k", 1, 14)):
            x = left + 10 + 30 * (WINDOW - code)
            if code:
                parts.append(line(x, y + low, x, y + high, f"{kind} mark"))
    steps = [text(left + 10 + 30 * step, 222, str(step), "soft small", "middle") for step in range(WINDOW)]
    return [*parts, *steps, text(left + 80, 240, "step", "soft small", "middle")]


def differences(left: float) -> list[str]:
    """A bar per channel, as long as the two spikes are apart."""
    gaps = np.abs(QUERY - KEYS[0])
    parts = [text(left, 34, "2. How far apart", "ink title")]
    for channel, gap in enumerate(gaps):
        y = 86 + 34 * channel
        parts += [bar(left, y - 7, 30 * int(gap), 14, "gap"), text(left + 30 * int(gap) + 7, y + 5, str(gap))]
    return [*parts, text(left, 222, f"distance D = {gaps.sum()} steps", "gap")]


def membrane(left: float) -> list[str]:
    """The membrane after each step of leak, up to D and beyond."""
    distance = int(np.abs(QUERY - KEYS[0]).sum())
    level = [200 - 120 * exp(-step / TAU) for step in range(distance + 1)]
    points = [(left + 20 * step, y) for step, y in enumerate(level)]
    stairs = f"M{points[0][0]:g} {points[0][1]:.1f}" + "".join(f"H{x:g}V{y:.1f}" for x, y in points[1 : distance + 1])
    parts = [text(left, 34, "3. What a leak leaves", "ink title"), line(left, 200, left + 170, 200, "axis")]
    parts.append(f'<path d="{stairs}" class="gap line" style="fill:none"/>')
    x, y = points[distance]
    parts += [line(x, y, x, 200, "gap mark"), text(left - 6, 84, "1", "soft small", "end")]
    parts += [text(x + 8, y + 4, f"{exp(-distance / TAU):.2f} left")]
    return [
        *parts,
        text(x, 222, f"D = {distance}", "soft small", "middle"),
        text(left, 240, "A = exp(-D / τ), τ = 4 steps", "soft small"),
    ]


def weights(left: float) -> list[str]:
    """The affinities of three keys, and the row after its shift."""
    affinity = np.exp(-np.abs(QUERY - KEYS).sum(axis=1) / TAU)
    shift = round(log2(affinity.sum()))
    parts = [text(left, 34, "4. The weight", "ink title")]
    for number, value in enumerate(affinity):
        x, scaled = left + 8 + 62 * number, value * 2.0**-shift
        parts += [
            bar(x, 200 - 120 * value, 20, 120 * value, "gap"),
            bar(x + 22, 200 - 120 * scaled, 20, 120 * scaled, "q"),
        ]
        parts.append(text(x + 21, 222, f"key {number + 1}", "soft small", "middle"))
    parts += [line(left, 200, left + 190, 200, "axis")]
    return [
        *parts,
        text(left, 56, "affinity", "gap small"),
        text(left + 56, 56, f"weight, shifted by {shift} bit", "q small"),
    ]


def main() -> None:
    parts = [*spikes(24), *differences(224), *membrane(400), *weights(620)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 840 260" role="img" aria-label="{ALT}">'
    back = '<rect x="0.5" y="0.5" width="839" height="259" rx="8" class="back"/>'
    lines = [head, f"<title>{ALT}</title>", f"<style>{STYLE}\n</style>", back, *parts, "</svg>"]
    Path(__file__).with_suffix(".svg").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

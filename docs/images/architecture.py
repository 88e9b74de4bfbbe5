"""Draw docs/images/architecture.svg: python docs/images/architecture.py."""

from __future__ import annotations

from pathlib import Path

# What rooms are for, and the rooms with a few words each.
LAYERS = [
    ("what people use", [("cli", "commands"), ("report", "pages, charts")]),
    (
        "training, torch",
        [("train", "recipes, loop"), ("nn", "modules"), ("convert", "to integers"), ("bridges", "ONNX, HF")],
    ),
    (
        "running, no torch",
        [("runtime", "Session"), ("models", "open by name"), ("pack", "one file"), ("deploy", "the definition")],
    ),
    ("shared", [("data", "images"), ("energy", "counts, costs"), ("ops", "equations"), ("relations", "rules")]),
    ("small modules", [("config, codes, spikes, trace, positions, preprocess, hub, native, errors, _util", "")]),
    ("C", [("csrc/", "kernels, engine, reader of packed files: on its own a library for C programs")]),
]
BESIDE = ["js/", "benchmarks/", "bridges/", "hardware/", "zoo/", "research/"]
WIDTH, LEFT, HEIGHT, GAP = 840, 150, 46, 10
STYLE = """
  .back { fill: #ffffff; stroke: #d0d7de } .ink { fill: #1f2328 } .soft { fill: #59636e }
  .room { fill: #ddf4ff; stroke: #0969da } .beside { fill: #fff1e5; stroke: #bc4c00 }
  @media (prefers-color-scheme: dark) {
    .back { fill: #0d1117; stroke: #3d444d } .ink { fill: #f0f6fc } .soft { fill: #a3adb8 }
    .room { fill: #0c2d6b; stroke: #4493f8 } .beside { fill: #4a2507; stroke: #f0883e }
  }
  text { font: 13px system-ui, sans-serif } .name { font-weight: 600; font-size: 14px } .small { font-size: 12px }"""
ALT = "The rooms of Lapis, grouped by what they are for. Six folders stand beside the package."


def text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{words}</text>'


def box(x: float, y: float, width: float, name: str, words: str, kind: str) -> list[str]:
    parts = [f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{HEIGHT}" rx="6" class="{kind}"/>']
    parts.append(text(x + 10, y + (20 if words else 28), name, "ink name"))
    return [*parts, text(x + 10, y + 37, words, "soft small")] if words else parts


def main() -> None:
    parts, y = [], 16.0
    for purpose, rooms in LAYERS:
        parts.append(text(16, y + 27, purpose, "soft small"))
        width = (WIDTH - LEFT - 16 + GAP) / len(rooms) - GAP
        for number, (name, words) in enumerate(rooms):
            parts += box(LEFT + number * (width + GAP), y, width, name, words, "room")
        y += HEIGHT + GAP
    parts.append(text(16, y + 27, "beside the package", "soft small"))
    width = (WIDTH - LEFT - 16 + GAP) / len(BESIDE) - GAP
    for number, name in enumerate(BESIDE):
        parts += box(LEFT + number * (width + GAP), y, width, name, "", "beside")
    height = y + HEIGHT + 16
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{ALT}">'
    back = f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:g}" rx="8" class="back"/>'
    lines = [head, f"<title>{ALT}</title>", f"<style>{STYLE}\n</style>", back, *parts, "</svg>"]
    Path(__file__).with_suffix(".svg").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Draw the first table of docs/results.md, docs/images/accuracy.png: python docs/images/accuracy.py."""

from __future__ import annotations

import re
from pathlib import Path

from matplotlib.figure import Figure

from lapis._util.files import save_figure

# From Okabe and Ito's palette, for colour-blind readers as well.
DENSE, SPIKING = "#d55e00", "#0072b2"
HERE = Path(__file__).resolve().parent
ROW = re.compile(r"^\| (.+?) \| (\d+) % \| ([\d.]+) % \[([\d.]+), ([\d.]+)\] \|", re.MULTILINE)
TEACHER = re.compile(r"^\| dense teacher.*?\| ([\d.]+) % \[", re.MULTILINE)


def main() -> None:
    page = (HERE.parent / "results.md").read_text(encoding="utf-8")
    rows = [(name, *map(float, numbers)) for name, *numbers in ROW.findall(page)]
    names, share, top, low, high = zip(*rows, strict=True)
    [teacher] = map(float, TEACHER.findall(page))
    figure = Figure(figsize=(7.2, 3.6), layout="constrained", dpi=120)
    axes = figure.add_subplot()
    axes.axhline(teacher, color=DENSE, linestyle="--", linewidth=1.2)
    axes.text(26, teacher + 0.4, "dense teacher, FP32", color=DENSE, fontsize=8)
    axes.plot(share, top, "o-", color=SPIKING, markersize=4)
    axes.fill_between(share, low, high, color=SPIKING, alpha=0.2, linewidth=0)
    for name, x, y in zip(names, share, top, strict=True):
        label = name.strip("`").removeprefix("lapis_tiny.") if name.startswith("`") else f"{y:.1f} %, not packaged"
        place = (0, 7) if name.endswith("half`") else (6, -11)
        axes.annotate(label, (x, y), place, textcoords="offset points", fontsize=8)
    axes.set(xlabel="values that spike, %", ylabel="top-1, % (band: 95 % interval)", xlim=(25, 100), ylim=(75, 97))
    axes.grid(alpha=0.3)
    save_figure(HERE / "accuracy.png", figure, metadata={"Software": None})


if __name__ == "__main__":
    main()

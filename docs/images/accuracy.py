"""Draw the first table of docs/results.md, docs/images/accuracy.png: python docs/images/accuracy.py."""

from __future__ import annotations

import re
from pathlib import Path

from matplotlib.figure import Figure

from lapis._util.files import save_figure

# From Okabe and Ito's palette, for colour-blind readers as well.
DENSE = "#d55e00"
# The rows of the table whose name has such a word: colour, marker, label.
SERIES = {"unsigned": ("#009e73", "s", "unsigned"), "earlier": ("#999999", "o--", "signed, earlier chain")}
NEW = ("#0072b2", "o-", "signed")
HERE = Path(__file__).resolve().parent
ROW = re.compile(r"^\| (.+?) \| (\d+) % \| ([\d.]+) % \[([\d.]+), ([\d.]+)\] \|", re.MULTILINE)
TEACHER = re.compile(r"^The teacher has ([\d.]+) % \[", re.MULTILINE)


def main() -> None:
    page = (HERE.parent / "results.md").read_text(encoding="utf-8")
    rows = [(name, *map(float, numbers)) for name, *numbers in ROW.findall(page)]
    [teacher] = map(float, TEACHER.findall(page))
    figure = Figure(figsize=(7.2, 3.6), layout="constrained", dpi=120)
    axes = figure.add_subplot()
    axes.axhline(teacher, color=DENSE, linestyle="--", linewidth=1.2)
    axes.text(16, teacher + 0.4, "dense teacher, FP32", color=DENSE, fontsize=8)
    for word, (colour, line, label) in {**SERIES, "": NEW}.items():
        own = [row for row in rows if word in row[0] and (word or not any(each in row[0] for each in SERIES))]
        if not own:
            continue
        names, share, top, low, high = zip(*own, strict=True)
        axes.plot(share, top, line, color=colour, markersize=4, label=label)
        axes.fill_between(share, low, high, color=colour, alpha=0.2, linewidth=0)
        for name, x, y in zip(names, share, top, strict=True):
            if name.startswith("`"):
                short = name.split("`")[1].removeprefix("lapis_tiny.")
                axes.annotate(short, (x, y), (-5, 5), textcoords="offset points", fontsize=8, color=colour, ha="right")
    axes.legend(loc="lower right", frameon=False, fontsize=8)
    axes.set(xlabel="values that spike, %", ylabel="top-1, % (band: 95 % interval)", xlim=(15, 100), ylim=(75, 99))
    axes.grid(alpha=0.3)
    save_figure(HERE / "accuracy.png", figure, metadata={"Software": None})


if __name__ == "__main__":
    main()

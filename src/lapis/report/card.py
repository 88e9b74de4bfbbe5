"""The model card of a published network: what it is, how to run it, its figures, and what they do not say.

Every figure comes from the JSON of a command, and stands beside that command, so that a reader can repeat it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lapis import hub
from lapis.config import AFFINITY_BITS

LIBRARY, TASK = "lapis", "image-classification"
TAGS = ("spiking-neural-network", "time-to-first-spike", "quantized", "timm")
# How the card names the repository and the folder of test images: the reader has their own.
REPOSITORY, DATA = "ORG/NAME", "DATA"


@dataclass(frozen=True)
class Measured:
    """A command, as a reader would type it in the repository's folder, and the JSON that it printed."""

    command: str
    record: Mapping[str, Any]


@dataclass(frozen=True)
class Facts:
    """What a card is made of. `evaluated` is None where there were no test images; `dataset` names those there were."""

    name: str
    license: str | None
    dataset: str | None
    sizes: Mapping[str, int]
    evaluated: Measured | None
    verified: Measured
    energy: Measured


def card(facts: Facts) -> str:
    """The text of README.md: a table of metadata for the hub, then Markdown."""
    parts = [
        _metadata(facts),
        _introduction(facts),
        _use(),
        _figures(facts),
        _energy(facts),
        _limits(facts),
        _files(facts),
    ]
    return "\n".join(parts)


def _metadata(facts: Facts) -> str:
    """The hub reads YAML between two lines of dashes; JSON is YAML in which any text is safe."""
    table: dict[str, Any] = {"library_name": LIBRARY, "pipeline_tag": TASK, "tags": list(TAGS)}
    if facts.license is not None:
        table["license"] = facts.license
    if facts.evaluated is not None:
        record = facts.evaluated.record
        metrics = [
            {"type": "accuracy", "name": "top-1 in %", "value": record["top1"]},
            {"type": "accuracy", "name": "top-5 in %", "value": record["top5"]},
        ]
        dataset = {"type": _identifier(facts.dataset or DATA), "name": facts.dataset or DATA}
        result = {"task": {"type": TASK}, "dataset": dataset, "metrics": metrics}
        table["model-index"] = [{"name": facts.name, "results": [result]}]
    return "\n".join(["---", *(f"{key}: {json.dumps(value)}" for key, value in table.items()), "---", ""])


def _introduction(facts: Facts) -> str:
    config = facts.energy.record["config"]
    return f"""# {_plain(facts.name)}

A vision transformer in which every activation between layers is at most one spike. Its attention compares spike times
(relation `{config["relation"]}`) and is deployed in integers.

- weights of {config["weight_bits"]} bits, affinities of {config.get("affinity_bits", AFFINITY_BITS)} bits
- time windows of {config["window"]} steps
- {config["depth"]} blocks, width {config["width"]}, {config["heads"]} heads, {config["classes"]} classes
- images of {config["image_size"]} x {config["image_size"]} pixels, in patches of {config["patch_size"]}
- `{hub.PACKED_FILE}`: {facts.sizes[hub.PACKED_FILE]:,} bytes
"""


def _use() -> str:
    return f"""## Use
Without torch (`pip install 'lapis-snn[hub]'`):

```python
from lapis import Session

session = Session("hf:{REPOSITORY}")
print(session.predict("photo.jpg"))
```

```sh
lapis predict hf:{REPOSITORY} photo.jpg
lapis train RECIPE --start hf:{REPOSITORY}
```

In torch (`pip install 'lapis-snn[hub,train]' timm`):

```python
from lapis.nn import LapisViT

model = LapisViT.from_pretrained("{REPOSITORY}")
```

```python
import timm
import lapis.nn.timm_models

model = timm.create_model("hf-hub:{REPOSITORY}", pretrained=True)
```
"""


def _figures(facts: Facts) -> str:
    lines = ["## Figures", "| what | value | command |", "|---|---|---|"]
    if facts.evaluated is not None:
        record, command = facts.evaluated.record, facts.evaluated.command
        images = f"{record['images']:,} test images of {_plain(facts.dataset or DATA)}"
        lines.append(f"| top-1, {images} | {record['top1']:.2f} % | `{command}` |")
        lines.append(f"| top-5, {images} | {record['top5']:.2f} % | the same |")
    record = facts.verified.record
    for name, row in record["executors"].items():
        if name != record["reference"] and row["tolerance"] == "equal":
            value = f"{row['codes_differing']:,} of {row['codes']:,} codes differ, on {row['images']:,} images"
            lines.append(f"| {name} beside the integer model | {value} | `{facts.verified.command}` |")
    if "spiking" in record:
        spiking = record["spiking"]
        lines.append(f"| spikes per image | {spiking['spikes_per_image']:,.0f} | the same |")
        lines.append(f"| synaptic operations per image | {spiking['synaptic_operations_per_image']:,.0f} | the same |")
    energy = facts.energy.record
    lines.append(f"| estimated energy per image | {energy['energy_mj']:.4f} mJ | `{facts.energy.command}` |")
    lines.append(f"| time steps per image | {energy['latency_steps']:,} | the same |")
    return "\n".join([*lines, ""])


def _energy(facts: Facts) -> str:
    record = facts.energy.record
    costs = record["costs"]
    lines = [
        "## Energy by convention",
        f"Costs: {costs['name']} ({costs['node']}). Activities: {_plain(record['activities_from'])}.",
        "",
        "| convention | mJ per image | the same network, plain quantized | zeros skipped | dense | what is counted |",
        "|---|---|---|---|---|---|",
    ]
    for row in record["conventions"]:
        lines.append(
            f"| {row['convention']} | {row['energy_mj']:.4f} | {row['quantized_mj']:.4f} | {row['skipping_mj']:.4f} "
            f"| {row['dense_energy_mj']:.4f} | {_plain(row['counted'])} |"
        )
    return "\n".join([*lines, ""])


def _limits(facts: Facts) -> str:
    energy = facts.energy.record
    memory = "Memory access is not counted." if energy["memory"] == "off" else "Memory access is counted."
    lines = [
        "## Limits",
        f"- Energy is an estimate, not a measurement: operations are counted, and priced by a convention. {memory}",
        f"- Executors were compared on {facts.verified.record['images']:,} images; `lapis verify` does it on yours.",
        "- The network knows only its classes: it gives every image one of them, whatever the image shows.",
    ]
    if facts.evaluated is None:
        lines.insert(1, "- Accuracy was not measured: no test images were given when this card was written.")
    return "\n".join([*lines, ""])


def _files(facts: Facts) -> str:
    lines = ["## Files", "| file | bytes |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{name}` | {size:,} |" for name, size in sorted(facts.sizes.items())), ""])


def _plain(text: str) -> str:
    """Text on one line of a Markdown table, with no markup of its own."""
    return re.sub(r"([\\`*_|<>\[\]#])", r"\\\1", " ".join(text.split()))


def _identifier(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "data"

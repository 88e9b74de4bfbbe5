"""The model card of a published network: what it is, how to run it, its figures, and what they do not say.

Every figure comes from the JSON of a command, and stands beside that command, so that a reader can repeat it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lapis import hub
from lapis.config import AFFINITY_BITS

LIBRARY, TASK = "lapis", "image-classification"
TAGS = ("spiking-neural-network", "time-to-first-spike", "quantized", "timm")
# How the card names the repository and the folder of test images: the reader has their own.
REPOSITORY, DATA = "ORG/NAME", "DATA"
_RIVALS = ("the same network, plain quantized", "zeros skipped", "dense")


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
    config, energy, verified = facts.energy.record["config"], facts.energy.record, facts.verified.record
    costs = energy["costs"]
    unknown = "- Accuracy was not measured: no test images were given when this card was written.\n"
    return f"""{_metadata(facts)}
# {_plain(facts.name)}

A vision transformer in which every activation between layers is at most one spike. Its attention compares spike times
(relation `{config["relation"]}`) and is deployed in integers.

- weights of {config["weight_bits"]} bits, affinities of {config.get("affinity_bits", AFFINITY_BITS)} bits
- time windows of {config["window"]} steps
- {config["depth"]} blocks, width {config["width"]}, {config["heads"]} heads, {config["classes"]} classes
- images of {config["image_size"]} x {config["image_size"]} pixels, in patches of {config["patch_size"]}
- `{hub.PACKED_FILE}`: {facts.sizes[hub.PACKED_FILE]:,} bytes

## Use
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

In transformers: `import lapis.bridges.transformers`, then `pipeline("image-classification", model="{REPOSITORY}")`. The
folder `onnx`, where there is one, needs no Lapis: ONNX Runtime gives the exact logits of its `pixel_values`.

## Figures
{_table(("what", "value", "command"), _figures(facts))}
## Energy by convention
Costs: {costs["name"]} ({costs["node"]}). Activities: {_plain(energy["activities_from"])}.

{_table(("convention", "mJ per image", *_RIVALS, "what is counted"), _conventions(energy))}
## Limits
{unknown if facts.evaluated is None else ""}\
- Energy is an estimate, not a measurement: operations are counted, and priced by a convention. Memory access is \
{"not counted" if energy["memory"] == "off" else "counted"}.
- Executors were compared on {verified["images"]:,} images; `lapis verify` does it on yours.
- The network knows only its classes: it gives every image one of them, whatever the image shows.

## Files
{_table(("file", "bytes"), ((f"`{name}`", f"{size:,}") for name, size in sorted(facts.sizes.items())))}"""


def _metadata(facts: Facts) -> str:
    """The hub reads YAML between two lines of dashes; JSON is YAML in which any text is safe."""
    table: dict[str, Any] = {"library_name": LIBRARY, "pipeline_tag": TASK, "tags": list(TAGS)}
    if facts.license is not None:
        table["license"] = facts.license
    if facts.evaluated is not None:
        record = facts.evaluated.record
        metrics = [{"type": "accuracy", "name": f"top-{k} in %", "value": record[f"top{k}"]} for k in (1, 5)]
        name = facts.dataset or DATA
        dataset = {"type": re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "data", "name": name}
        result = {"task": {"type": TASK}, "dataset": dataset, "metrics": metrics}
        table["model-index"] = [{"name": facts.name, "results": [result]}]
    return "\n".join(["---", *(f"{key}: {json.dumps(value)}" for key, value in table.items()), "---", ""])


def _figures(facts: Facts) -> Iterator[tuple[str, str, str]]:
    if facts.evaluated is not None:
        record, command = facts.evaluated.record, facts.evaluated.command
        images = f"{record['images']:,} test images of {_plain(facts.dataset or DATA)}"
        low, high = record["interval95"]
        yield f"top-1, {images}", f"{record['top1']:.2f} % [{low:.2f}, {high:.2f}]", f"`{command}`"
        yield f"top-5, {images}", f"{record['top5']:.2f} %", "the same"
    record = facts.verified.record
    for name, row in record["executors"].items():
        if name != record["reference"] and row["tolerance"] == "equal":
            value = f"{row['codes_differing']:,} of {row['codes']:,} codes differ, on {row['images']:,} images"
            yield f"{name} beside the integer model", value, f"`{facts.verified.command}`"
    if "spiking" in record:
        spiking = record["spiking"]
        yield "spikes per image", f"{spiking['spikes_per_image']:,.0f}", "the same"
        yield "synaptic operations per image", f"{spiking['synaptic_operations_per_image']:,.0f}", "the same"
    yield "estimated energy per image", f"{facts.energy.record['energy_mj']:.4f} mJ", f"`{facts.energy.command}`"
    yield "time steps per image", f"{facts.energy.record['latency_steps']:,}", "the same"


def _conventions(energy: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for row in energy["conventions"]:
        figures = (f"{row[name]:.4f}" for name in ("energy_mj", "quantized_mj", "skipping_mj", "dense_energy_mj"))
        yield row["convention"], *figures, _plain(row["counted"])


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (names, *rows)]
    return "\n".join([lines[0], "|---" * len(names) + "|", *lines[1:], ""])


def _plain(text: str) -> str:
    """Text on one line of a Markdown table, with no markup of its own."""
    return re.sub(r"([\\`*_|<>\[\]#])", r"\\\1", " ".join(text.split()))

"""The public surface, pinned: what users may import. tests/docs sees that documents import nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from inspect import isclass, isfunction, signature
from pathlib import Path

import pytest

from lapis.errors import LapisError
from lapis.trace import POINTS, Tally
from tests.distilled import write_dense, write_photos
from tests.docs.given import make
from tests.networks import small_config, wide_network

SURFACE: dict[str, set[str]] = {
    "lapis": {
        "LapisConfig", "LapisError", "Model", "Prediction", "Preprocess", "Session", "__version__", "list_models",
        "load", "preset",
    },
    "lapis.ops": {
        "affinity", "attention", "attention_spikes", "decode", "encode", "first_spike", "hamming_distance",
        "integer_attention", "l1_distance", "latency", "lsq_codes", "lsq_value", "pack6", "scale_rows",
        "squared_distance", "unpack6",
    },
    "lapis.nn": {
        "ActivationQuantizer", "Calibrated", "DistanceRelation", "DotProduct", "LapisAttention", "LapisViT",
        "Mixer", "Pairwise", "Relation", "TableRelation", "calibrate",
        "import_timm", "is_calibrated", "load_backbone", "load_network", "register_relation",
        "replace_attention", "save_network",
    },
    "lapis.relations": {"PACKED", "DotRule", "Rule", "TableRule", "names", "register", "rule_of"},
    "lapis.deploy": {"Network", "run", "watch"},
    "lapis.convert": {"DeployedEvaluator", "Executor", "TorchExecutor", "from_model", "to_model", "verify"},
    "lapis.pack": {"PackedFile", "is_packed", "load", "pack", "save"},
    "lapis.models": {"KINDS", "Model", "list_models", "load"},
    "lapis.train": {"Recipe", "distill", "load_recipe", "recipe_names", "train"},
    "lapis.energy": {
        "CONVENTIONS", "Activities", "Costs", "Estimate", "Mixing", "Operation", "SpikingNetwork", "energy_of",
        "estimate", "load_activities", "load_costs", "load_spiking_network",
        "load_tally", "save_tally", "side_by_side", "tables",
    },
    "lapis.report": {"Explained", "explain", "write_page"},
}  # fmt: skip
ROOMS_WITHOUT_TORCH = ["relations", "ops", "deploy", "pack", "models", "runtime", "energy"]


@pytest.mark.parametrize("package", SURFACE)
def test_a_package_exports_what_is_pinned_and_no_more(package: str) -> None:
    module = import_module(package)
    assert set(module.__all__) == SURFACE[package]
    for name in module.__all__:
        assert getattr(module, name) is not None


@pytest.mark.parametrize("package", ["lapis", *(f"lapis.{room}" for room in ROOMS_WITHOUT_TORCH)])
def test_what_is_deployed_loads_without_torch(package: str) -> None:
    code = f"import sys; import {package}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def _public_functions() -> Iterator[tuple[str, Callable[..., object]]]:
    """Every function of the surface, and the methods of its classes."""
    for package, names in SURFACE.items():
        for name in sorted(names):
            value = getattr(import_module(package), name)
            if isfunction(value):
                yield f"{package}.{name}", value
            elif isclass(value):
                own = [(word, each) for word, each in vars(value).items() if isfunction(each)]
                yield from ((f"{package}.{name}.{word}", each) for word, each in own if not word.startswith("__"))
                yield f"{package}.{name}", value


def test_wherever_a_path_is_taken_text_is_taken_too() -> None:
    taken = set()
    for name, function in _public_functions():
        try:
            parameters = signature(function).parameters
        except ValueError:  # a class of C has none
            continue
        for word, parameter in parameters.items():
            # The fields of a class that only Lapis makes are no arguments.
            if "Path" in str(parameter.annotation) and name not in ("lapis.models.Model", "lapis.Model"):
                assert "str" in str(parameter.annotation), f"{name}({word}: {parameter.annotation})"
                taken.add(f"{name}:{word}")
    assert taken == set(TAKES_PATHS)


def _train(place: Path, kind: Callable[[Path], str | Path]) -> None:
    from lapis.train import load_recipe, train

    tiny = ["model.depth=1", "model.width=16", "model.heads=2", "model.patch_size=8", "data.limit=16", "data.workers=0",
            "data.test_limit=10", "data.calibrate=8", "optim.batch=16", "optim.epochs=1"]  # fmt: skip
    cifar = [*tiny, "data.dataset=cifar10"]
    make("cifar", place)
    summary = train(load_recipe("smoke").with_overrides(cifar), kind(place / "cifar"), kind(place / "run"), quiet=True)
    assert summary["out"] == str(place / "run")
    assert (place / "run" / "best.safetensors").is_file()


def _distill(place: Path, kind: Callable[[Path], str | Path]) -> None:
    """Every path is taken before the pictures turn out to be too few."""
    from lapis.train import distill

    write_dense(place / "dense.safetensors")
    write_photos(place / "photos", 3)
    with pytest.raises(LapisError, match="3 images were found"):
        distill(
            kind(place / "dense.safetensors"), [kind(place / "photos")], kind(place / "m.safetensors"),
            folder=kind(place / "runs"),
        )  # fmt: skip


def _networks(place: Path, kind: Callable[[Path], str | Path]) -> None:
    """Save, load and open, packed and as a checkpoint."""
    from lapis import Session, models, pack
    from lapis.nn import LapisViT, load_backbone, load_network, save_network

    packed, checkpoint = kind(place / "new" / "net.safetensors"), kind(place / "new" / "checkpoint.safetensors")
    assert pack.save(packed, wide_network(depth=1)) == Path(packed).stat().st_size
    assert pack.is_packed(packed)
    assert pack.load(packed).config.depth == models.load(packed).config.depth == Session(packed).config.depth == 1
    save_network(checkpoint, LapisViT(small_config()))
    assert load_network(checkpoint).config == models.load(checkpoint).config == small_config()
    LapisViT(small_config()).save_pretrained(kind(place / "folder"))
    assert LapisViT.from_pretrained(kind(place / "folder")).config == small_config()
    make("deit_tiny.safetensors", place)
    assert load_backbone(kind(place / "deit_tiny.safetensors")).config.width == 192


def _energy(place: Path, kind: Callable[[Path], str | Path]) -> None:
    from lapis.energy import load_activities, load_costs, load_spiking_network, load_tally, save_tally

    costs, tally = (kind(place / name) for name in ("new/costs.json", "new/tally.json"))
    save_tally(tally, Tally(images=3), small_config())
    assert load_tally(tally)[0].images == 3
    Path(costs).write_text(json.dumps([0.5] * len(POINTS)))
    assert load_activities(costs, small_config())[0].at(0, "q") == 0.5
    Path(costs).write_text(json.dumps(dict(load_costs("45nm").fields)))
    assert load_costs(costs) == load_costs("45nm")
    Path(costs).write_text(json.dumps({"name": "a", "time_steps": 1, "layers": []}))
    assert load_spiking_network(costs).name == "a"


def _pages(place: Path, kind: Callable[[Path], str | Path]) -> None:
    from lapis import pack
    from lapis.report import explain, write_page

    model, page = place / "net.safetensors", kind(place / "new" / "page.html")
    pack.save(model, wide_network(depth=1))
    make("photo.png", place)
    explained = explain(kind(model), kind(place / "photo.png"))
    assert write_page(page, explained) == Path(page).stat().st_size


# Every argument of the surface that is a path, and the test that gives it.
TAKES_PATHS = {
    "lapis.Session:model": _networks,
    "lapis.nn.LapisViT.save_pretrained:folder": _networks,
    "lapis.nn.load_backbone:source": _networks,
    "lapis.nn.load_network:path": _networks,
    "lapis.nn.save_network:path": _networks,
    "lapis.pack.is_packed:path": _networks,
    "lapis.pack.load:path": _networks,
    "lapis.pack.save:path": _networks,
    "lapis.models.load:source": _networks,
    "lapis.load:source": _networks,
    "lapis.train.distill:source": _distill,
    "lapis.train.distill:images": _distill,
    "lapis.train.distill:file": _distill,
    "lapis.train.distill:folder": _distill,
    "lapis.train.train:data": _train,
    "lapis.train.train:out": _train,
    "lapis.energy.load_costs:name_or_file": _energy,
    "lapis.energy.load_spiking_network:path": _energy,
    "lapis.energy.load_activities:path": _energy,
    "lapis.energy.load_tally:path": _energy,
    "lapis.energy.save_tally:path": _energy,
    "lapis.report.explain:model": _pages,
    "lapis.report.explain:image": _pages,
    "lapis.report.write_page:path": _pages,
}


@pytest.mark.parametrize("kind", [str, Path])
@pytest.mark.parametrize("use", dict.fromkeys(TAKES_PATHS.values()))
def test_text_and_paths_do_the_same(
    use: Callable[[Path, Callable[[Path], str | Path]], None], kind: Callable[[Path], str | Path], tmp_path: Path
) -> None:
    use(tmp_path, kind)

"""Networks come from a hub by name, whole and as they were announced, or one error says why not."""

from __future__ import annotations

import builtins
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from lapis import Session, hub, models, pack
from lapis.cli import main
from lapis.convert import from_model
from lapis.errors import LapisError
from lapis.nn import LapisViT
from lapis.preprocess import Preprocess
from tests.docs.given import make
from tests.hub_server import Hub, running
from tests.networks import Pixels, small_config, small_model

NAME = "hf:org/net"
RULE = Preprocess(8, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25), crop=0.5)
ABOUT = {"class_names": ["a", "b", "c"], "preprocess": RULE.to_dict(), "state": "trained"}


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def served(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """An empty hub to which huggingface_hub talks, with a cache of its own."""
    constants = pytest.importorskip(
        "huggingface_hub.constants", reason="huggingface_hub is not installed: pip install 'lapis-snn[hub]'"
    )
    import huggingface_hub

    with running() as server:
        # The package reads its variables once, when it is imported; another test may have done that.
        values = {"ENDPOINT": server.address, "HF_HUB_CACHE": str(cache), "HF_HUB_DISABLE_XET": True}
        values["HUGGINGFACE_CO_URL_TEMPLATE"] = server.address + "/{repo_id}/resolve/{revision}/{filename}"
        for name, value in values.items():
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setenv("HF_TOKEN", "hf_test")
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        yield server
        huggingface_hub.close_session()


@pytest.fixture
def model() -> tuple[LapisViT, Pixels]:
    network, images = small_model(small_config(), 1)
    network.about = dict(ABOUT)
    return network, images


@pytest.fixture
def published(served: Hub, model: tuple[LapisViT, Pixels]) -> bytes:
    """The packed network in the repository org/net."""
    content = pack.pack(from_model(model[0], RULE, ("a", "b", "c")))
    served.repositories["org/net"] = {hub.PACKED_FILE: content}
    return content


def offline(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    huggingface_hub.close_session()
    server.requests.clear()


def kept(cache: Path) -> list[str]:
    """The files of the cache that hold content of a repository."""
    return sorted(
        path.name for path in cache.rglob("*") if {"blobs", "snapshots"} & set(path.parts) and not path.is_dir()
    )


def test_a_packed_network_runs_by_its_name(
    published: bytes, served: Hub, model: tuple[LapisViT, Pixels], tmp_path: Path
) -> None:
    (tmp_path / "same.safetensors").write_bytes(published)
    by_name, by_file = Session(NAME), Session(tmp_path / "same.safetensors")
    assert by_name.class_names == ("a", "b", "c")
    np.testing.assert_array_equal(by_name.run(model[1]), by_file.run(model[1]))
    opened = models.load(f"{NAME}@{served.commit('org/net')}")
    assert (opened.kind, opened.preprocess) == ("packed", RULE)


def test_the_command_line_predicts_by_name_without_torch(published: bytes, served: Hub, tmp_path: Path) -> None:
    make("photo.png", tmp_path)
    code = (
        "import sys; from lapis.cli import main; code = main(sys.argv[1:]); sys.exit(code or ('torch' in sys.modules))"
    )
    environment = {**os.environ, "HF_ENDPOINT": served.address, "HF_HOME": str(tmp_path / "home")}
    ran = subprocess.run(
        [sys.executable, "-c", code, "predict", NAME, str(tmp_path / "photo.png"), "--json"],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[0])
    assert f"GET /org/net/resolve/main/{hub.PACKED_FILE}" in served.requests


def test_a_repository_without_a_packed_file_gives_its_checkpoint(
    served: Hub, model: tuple[LapisViT, Pixels], tmp_path: Path
) -> None:
    model[0].save_pretrained(tmp_path / "saved")
    served.repositories["org/net"] = {hub.CHECKPOINT_FILE: (tmp_path / "saved" / hub.CHECKPOINT_FILE).read_bytes()}
    opened = models.load(NAME)
    assert (opened.kind, opened.class_names) == ("checkpoint", ("a", "b", "c"))
    with pytest.raises(LapisError, match="say with --out"):
        _invoke("pack", NAME)
    served.repositories["org/net"] = {"notes.txt": b"nothing"}
    with pytest.raises(LapisError, match=r"holds no packed\.safetensors or model\.safetensors"):
        models.load(NAME)


def test_training_starts_from_a_name(published: bytes) -> None:
    from lapis.train.start import start_network

    started = start_network(small_config(), NAME, 0)
    expected = models.load(NAME).torch()
    torch.testing.assert_close(started.head.weight, expected.head.weight, rtol=0, atol=0)


def test_what_was_fetched_is_used_without_a_network(
    published: bytes, served: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = hub.fetch(NAME)
    assert [one.split()[0] for one in served.requests] == ["HEAD", "GET"]
    offline(served, monkeypatch)
    assert hub.fetch(NAME) == first
    assert first.is_relative_to(cache)
    with pytest.raises(LapisError, match="hf:org/other is not in the cache, and the hub cannot be reached") as caught:
        hub.fetch("hf:org/other")
    assert "\n" not in str(caught.value)
    assert served.requests == []


def test_a_damaged_download_is_refused_and_leaves_nothing(published: bytes, served: Hub, cache: Path) -> None:
    served.damaged.add(hub.PACKED_FILE)
    with pytest.raises(LapisError, match="damaged on its way"):
        models.load(NAME)
    assert kept(cache) == []
    served.damaged.clear()
    assert models.load(NAME).network.class_names == ("a", "b", "c")


def test_a_file_that_was_damaged_in_the_cache_is_refused(published: bytes, served: Hub) -> None:
    blob = hub.fetch(NAME).resolve()
    blob.write_bytes(blob.read_bytes()[:-1] + b"!")
    with pytest.raises(LapisError, match="damaged"):
        hub.fetch(NAME)
    assert hub.fetch(NAME).read_bytes() == published


def test_a_small_file_is_checked_by_the_hash_of_git(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"hello\n")
    assert hub._hash(tmp_path / "file", 40) == "ce013625030ba8dba906f756967f9e9ca394464a"


def test_what_the_hub_does_not_have_is_one_clear_error(published: bytes) -> None:
    for name, reason in (
        ("hf:org/none", "no such repository"),
        (f"{NAME}@none", "no such revision"),
        (f"{NAME}/none.safetensors", r"holds no none\.safetensors"),
    ):
        with pytest.raises(LapisError, match=reason) as caught:
            models.load(name)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["hf:", "hf:net", "hf:/net", "hf:org/", "hf:../net", "hf:org/..", "hf:org/net/../../x.safetensors", "hf:org//net",
     "hf:org/net@../../../x", "hf:org/net@", "hf:org/net@a@b", "hf:org/net/x.pkl", "hf:org/net\n", "hf:org/net\0",
     "hf:org/ne t", "hf:~/net", "hf:http://127.0.0.1/x", "hf:org/n\u00e9t", f"hf:org/{'n' * 1000}", "hf:org/net?x=1"],
)  # fmt: skip
def test_hostile_names_are_refused_before_anything_is_asked(
    name: str, served: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LapisError, match="is not a name on the hub"):
        hub.fetch(name)
    assert served.requests == []
    assert not cache.exists()


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> ModuleType:
        if name.startswith("huggingface_hub"):
            raise ImportError(f"No module named {name!r}")
        return found(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(LapisError, match=r"hf:org/net needs huggingface_hub: .*pip install"):
        models.load(NAME)


def test_a_network_goes_to_the_hub_and_comes_back(served: Hub, model: tuple[LapisViT, Pixels]) -> None:
    network, _ = model
    address = network.push_to_hub("org/new")
    assert address == f"{served.address}/org/new"
    assert set(served.repositories["org/new"]) == {hub.CHECKPOINT_FILE, hub.CONFIG_FILE}
    back = LapisViT.from_pretrained("org/new")
    assert (back.config, back.preprocess) == (network.config, RULE)
    assert back.about == json.loads(json.dumps(ABOUT))
    assert all(torch.equal(value, back.state_dict()[name]) for name, value in network.state_dict().items())
    with pytest.raises(LapisError, match="names a file"):
        network.push_to_hub("org/new/model.safetensors")


def test_timm_loads_a_published_network(served: Hub, model: tuple[LapisViT, Pixels], timm: ModuleType) -> None:
    import lapis.nn.timm_models  # noqa: F401

    network, _ = model
    network.push_to_hub("org/new")
    x = torch.randn(2, 3, 8, 8)
    back = timm.create_model("hf-hub:org/new", pretrained=True).eval()
    assert torch.equal(back(x), network(x))
    data = timm.data.resolve_model_data_config(back)
    assert (data["mean"], data["std"], data["crop_pct"]) == (RULE.mean, RULE.std, RULE.crop)
    assert back.about["class_names"] == ["a", "b", "c"]
    other = timm.create_model("hf-hub:org/new", pretrained=True, num_classes=5).eval()
    assert other(x).shape == (2, 5)
    assert torch.equal(other.forward_features(x), network.forward_features(x))


def _invoke(*words: str) -> None:
    """Run a command and raise its error."""
    from lapis.cli.app import app

    with app.make_context("lapis", list(words)) as context:
        app.invoke(context)


def test_a_command_reports_a_hostile_name_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "hf:../../etc/passwd"]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("lapis: error: 'hf:../../etc/passwd' is not a name on the hub")
    assert "\n" not in said

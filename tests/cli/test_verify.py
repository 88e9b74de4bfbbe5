"""`lapis verify` as a person uses it."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapis import native
from lapis.cli import main
from lapis.convert.fold import from_model
from lapis.deploy.simulate import Simulator
from lapis.errors import EXIT_BAD_INPUT, EXIT_CHECK_FAILED, EXIT_OK
from lapis.nn import save_network
from lapis.pack import save
from tests.networks import small_config, small_model

CONFIG = small_config(classes=10, width=12)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verify") / "trained.safetensors"
    save_network(path, small_model(CONFIG)[0], {"dataset": "cifar10"})
    return path


def _run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    code = main(arguments)
    return code, json.loads(capsys.readouterr().out)


def test_every_executor_is_compared_at_every_point(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, record = _run(["verify", str(checkpoint), "-n", "4", "--json", "--quiet"], capsys)
    assert code == EXIT_OK
    assert record["checks_passed"] is True
    assert set(record["executors"]) - {"native"} == {"integers", "spikes", "stages", "trained", "float"}
    assert ("native" in record["executors"]) == native.available()
    spikes = record["executors"]["spikes"]
    assert (spikes["tolerance"], spikes["codes_differing"], spikes["images_with_other_logits"]) == ("equal", 0, 0)
    trained = record["executors"]["trained"]
    assert (trained["tolerance"], trained["codes_differing"], trained["images_with_other_logits"]) == ("equal", 0, 0)
    assert len(spikes["points"]) == 2 * 7
    assert set(record["top1"]) == set(record["executors"])


def test_a_packed_file_is_verified_without_torch(checkpoint: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed.safetensors"
    save(packed, from_model(small_model(CONFIG)[0]))
    code = (
        "import sys; sys.modules['torch'] = None; from lapis.cli import main;"
        f"sys.exit(main(['verify', {str(packed)!r}, '-n', '2', '--quiet']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_OK, done.stderr
    assert "PASS: every executor agrees" in done.stdout


def test_a_packed_file_has_no_trained_network(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = tmp_path / "packed.safetensors"
    save(packed, from_model(small_model(CONFIG)[0]))
    assert main(["verify", str(packed), "--only", "trained"]) == EXIT_BAD_INPUT
    assert "holds no trained network" in capsys.readouterr().err


@pytest.mark.parametrize("simulator", ["simulate", "simulate_native"])
def test_a_neuron_that_is_wrong_is_named(
    simulator: str, checkpoint: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real comparison on a simulator with one real fault: a synapse that is too strong."""
    if simulator == "simulate":
        monkeypatch.setattr("lapis.convert.verification.fast_simulator", Simulator)
    elif not native.available():
        pytest.skip("the native library was not built; `lapis info` says why")
    module = importlib.import_module(f"lapis.deploy.{simulator}")
    healthy = module.integrate

    def faulty(spikes: Any, synapses: Any, *rest: int) -> Any:
        changed = synapses.copy()
        changed[0, 0] += 40
        return healthy(spikes, changed, *rest)

    monkeypatch.setattr(module, "integrate", faulty)
    code, record = _run(["verify", str(checkpoint), "-n", "2", "--only", "spikes", "--json", "--quiet"], capsys)
    assert code == EXIT_CHECK_FAILED
    first = record["executors"]["spikes"]["first_mismatch"]
    assert (first["block"], first["channel"]) == (0, 0)
    assert first["point"] == "q"
    assert first["expected"] != first["seen"]
    assert main(["verify", str(checkpoint), "-n", "2", "--only", "spikes", "--quiet"]) == EXIT_CHECK_FAILED
    assert "first difference of spikes: block 0, q, image" in capsys.readouterr().out


def test_the_native_engine_answers_bit_for_bit(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not native.available():
        pytest.skip("the native library was not built; `lapis info` says why")
    code, record = _run(["verify", str(checkpoint), "-n", "9", "--only", "native", "--json", "--quiet"], capsys)
    engine = record["executors"]["native"]
    assert (code, engine["tolerance"], engine["codes_differing"], engine["images_with_other_logits"]) == (
        0,
        "equal",
        0,
        0,
    )


def test_float_weights_have_no_spiking_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "w32.safetensors"
    save_network(path, small_model(CONFIG.replace(weight_bits=32))[0])
    assert main(["verify", str(path), "-n", "2", "--quiet"]) == EXIT_BAD_INPUT
    assert "fine-tune with weight_bits=6" in capsys.readouterr().err


@pytest.mark.parametrize("model", ["no_such_model", "/tmp"])
def test_what_is_no_model_is_bad_input(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", model]) == EXIT_BAD_INPUT
    assert "lapis: error:" in capsys.readouterr().err


def test_images_of_a_folder_are_used(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    for label in range(10):
        folder = tmp_path / "val" / f"{label}"
        folder.mkdir(parents=True)
        noise = np.random.default_rng(label).integers(0, 256, (9, 12, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / "image.png")
    arguments = ["verify", str(checkpoint), "--data", str(tmp_path), "-n", "3", "--json", "--quiet", "--only", "spikes"]
    code, record = _run(arguments, capsys)
    assert (code, record["images"]) == (EXIT_OK, 3)


def test_every_executor_gives_the_same_bits_in_any_batch(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["verify", str(checkpoint), "-n", "5", "--batch", "3,1", "--only", "spikes", "--only", "trained", "--quiet"]
    code, record = _run([*words, "--json"], capsys)
    assert code == EXIT_OK
    names = ["integers", "integers x1", "spikes x1", "spikes x3", "trained x1", "trained x3"]
    assert list(record["executors"]) == names
    assert all(row["images"] == 5 for row in record["executors"].values())
    assert all(record["executors"][name]["passed"] for name in names)


def test_an_executor_whose_answer_depends_on_the_batch_is_caught(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a membrane ran on from one image of a batch to the next."""
    cli = importlib.import_module("lapis.cli.verify")
    honest = cli.spiking_executor

    def leaky(network: Any, events: Any) -> Any:
        run = honest(network, events).run

        def watch(images: Any) -> Any:
            seen = run(images)
            seen.logits[1:] += 1
            return seen

        return cli.Executor(watch, "equal")

    monkeypatch.setattr(cli, "spiking_executor", leaky)
    words = ["verify", str(checkpoint), "-n", "2", "--batch", "1,2", "--only", "spikes", "--quiet", "--json"]
    code, record = _run(words, capsys)
    assert code == EXIT_CHECK_FAILED
    assert record["executors"]["spikes x1"]["passed"]
    assert not record["executors"]["spikes x2"]["passed"]


@pytest.mark.parametrize("text", ["0", "a", "1,,8", "2000", "-1"])
def test_a_bad_batch_size_is_refused(text: str, checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(checkpoint), f"--batch={text}"]) == EXIT_BAD_INPUT
    assert "write it as 1,8" in capsys.readouterr().err

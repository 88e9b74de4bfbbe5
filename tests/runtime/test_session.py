"""A session answers as the integer model does, natively and in numpy, and never needs torch."""

from __future__ import annotations

import copy
import io
import json
import pickle
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import lapis
from lapis import native, pack
from lapis.deploy import integer
from lapis.deploy.network import Network
from lapis.errors import LapisError
from lapis.runtime import Session
from lapis.runtime.session import NUMPY
from tests.networks import images_for, wide_network

PREDICTIONS = 500


@pytest.fixture(scope="module")
def network() -> Network:
    return wide_network(depth=1)


@pytest.fixture(scope="module")
def packed(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packed") / "model.safetensors"
    pack.save(path, network)
    return path


@pytest.fixture(params=[True, False], ids=["native", "numpy"])
def session(request: pytest.FixtureRequest, packed: Path) -> Session:
    if request.param and not native.available():
        pytest.skip(f"no native kernels: {native.describe()}")
    return Session(packed, native=request.param)


def test_native_and_numpy_give_the_integer_models_logits(session: Session, network: Network) -> None:
    images = images_for(network, 5)
    assert (session.run(images) == network.real_logits(integer.run(network, images))).all()


def test_watching_gives_the_same_logits_and_every_code(session: Session, network: Network) -> None:
    images = images_for(network, 3)
    logits, trace = session.watch(images)
    assert (logits == session.run(images)).all()
    want = integer.watch(network, images).trace
    assert all((trace[key] == want[key]).all() for key in want)


def test_files_arrays_lists_and_batches_are_all_taken(session: Session, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (31, 45, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    want = session.run(pixels)
    assert want.shape == (1, 7)
    for images in (
        tmp_path / "image.png",
        str(tmp_path / "image.png"),
        [pixels],
        pixels[None],
        [tmp_path / "image.png"],
    ):
        assert (session.run(images) == want).all()
    assert (session.run([pixels, tmp_path / "image.png"]) == np.concatenate([want, want])).all()


def test_predictions_are_ranked_named_and_sum_to_one(session: Session, network: Network) -> None:
    images = images_for(network, 2)
    answers = session.predict(images, top_k=7)
    for row, answer in zip(session.run(images), answers, strict=True):
        assert [one.index for one in answer] == np.argsort(-row, kind="stable").tolist()
        assert abs(sum(one.score for one in answer) - 1) < 1e-9
        assert [one.label for one in answer] == [str(one.index) for one in answer]
    assert [len(answer) for answer in session.predict(images, top_k=2)] == [2, 2]


@pytest.mark.parametrize(
    "images", [[], np.zeros((4, 4, 2), np.uint8), np.zeros((2, 4, 4, 3), np.float32), ["none.png"]]
)
def test_what_is_no_image_is_refused(session: Session, images: Any) -> None:
    with pytest.raises(LapisError):
        session.run(images)


def test_a_file_that_is_no_image_is_refused(session: Session, tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("not an image")
    with pytest.raises(LapisError, match=r"text\.png"):
        session.run(tmp_path / "text.png")


def test_one_session_may_be_called_from_many_threads(session: Session, network: Network) -> None:
    images = [images_for(network, 2, seed) for seed in range(6)]
    want = [session.run(pixels) for pixels in images]
    with ThreadPoolExecutor(4) as pool:
        for found, logits in zip(pool.map(session.run, images * 5), want * 5, strict=True):
            assert (found == logits).all()


def test_many_predictions_take_no_more_memory(session: Session, network: Network) -> None:
    images = images_for(network, 2)
    for _ in range(20):
        session.run(images)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(PREDICTIONS):
        session.run(images)
    # A leak of one small image in each prediction would be 2.4 MB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1024


def test_without_the_library_the_session_is_numpy(packed: Path, network: Network) -> None:
    with native.force(native.NONE):
        session = Session(packed)
    assert session.executor == NUMPY
    images = images_for(network, 2)
    assert (session.run(images) == network.real_logits(integer.run(network, images))).all()


def test_one_image_in_is_one_answer_out(session: Session, network: Network) -> None:
    image = images_for(network, 1)[0]
    (best,) = session.predict(image, top_k=1)
    assert [[best]] == session.predict([image], top_k=1)
    assert dict(best) == {"label": best.label, "score": best.score, "index": best.index, "logit": best.logit}


def test_a_session_pickles_copies_closes_and_shows_itself(session: Session, network: Network) -> None:
    images = images_for(network, 2)
    for other in (copy.copy(session), pickle.loads(pickle.dumps(session))):
        assert (other.run(images) == session.run(images)).all()
        with other:
            assert "classes" in repr(other)
        assert "closed" in repr(other)
        with pytest.raises(LapisError, match="closed"):
            other.run(images)


def test_a_pickled_session_refuses_another_file(packed: Path) -> None:
    made, data = pickle.dumps(Session(packed)), packed.read_bytes()
    packed.write_bytes(pack.pack(wide_network(seed=9)))
    try:
        with pytest.raises(LapisError, match="has changed"):
            pickle.loads(made)
    finally:
        packed.write_bytes(data)


def test_an_open_file_is_read_from_where_it_stands_and_twice_if_asked(session: Session, tmp_path: Path) -> None:
    Image.new("RGB", (9, 7), (200, 10, 30)).save(tmp_path / "image.png")
    (tmp_path / "behind").write_bytes(b"head" + (tmp_path / "image.png").read_bytes())
    want = session.run(tmp_path / "image.png")
    with (tmp_path / "behind").open("rb") as file:
        file.seek(4)
        assert (session.run(file) == want).all()
        assert (session.run(file) == want).all()
    with pytest.raises(LapisError, match="closed file"):
        session.run(file)


def test_grey_and_four_channel_arrays_are_taken(session: Session) -> None:
    grey = np.random.default_rng(1).integers(0, 256, (12, 10), dtype=np.uint8)
    rgb = np.repeat(grey[:, :, None], 3, axis=2)
    for image in (grey, grey[:, :, None], np.concatenate([rgb, grey[:, :, None]], axis=2)):
        assert (session.run(image) == session.run(rgb)).all()


@pytest.mark.parametrize("wrong", [None, 3, 2.5, {}, [None], [3]])
def test_what_cannot_be_an_image_is_one_error(session: Session, wrong: Any) -> None:
    with pytest.raises(LapisError, match="is no image"):
        session.predict(wrong)


def test_a_class_that_does_not_exist_has_no_name(session: Session) -> None:
    for index in (-1, session.config.classes):
        with pytest.raises(LapisError, match="does not exist"):
            session.name_of(index)


def test_a_missing_model_says_what_exists(tmp_path: Path) -> None:
    for missing in (tmp_path / "none.safetensors", "no_such_name"):
        with pytest.raises(LapisError, match=r"packaged models: lapis_tiny\.cifar10"):
            Session(missing)


def test_the_package_offers_session_without_loading_it() -> None:
    assert lapis.Session is Session
    code = "import sys, lapis; sys.exit('lapis.runtime' in sys.modules or 'PIL' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    with pytest.raises(AttributeError, match="no_such"):
        _ = lapis.no_such


def test_a_prediction_works_with_torch_blocked(packed: Path, network: Network) -> None:
    code = f"""
import sys, json
sys.modules["torch"] = None
import numpy as np, lapis
images = np.random.default_rng(0).integers(0, 256, (2, 20, 20, 3), dtype=np.uint8)
print(json.dumps([lapis.Session({str(packed)!r}, native=n).run(images).tolist() for n in (True, False)]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    want = network.real_logits(integer.run(network, images_for(network, 2))).tolist()
    assert json.loads(done.stdout) == [want, want]


def test_an_image_is_the_same_in_every_form(session: Session, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)
    path = tmp_path / "image.png"
    Image.fromarray(pixels).save(path)
    want = session.run(pixels)
    data = path.read_bytes()
    with path.open("rb") as opened, Image.open(path) as picture:
        forms = [path, str(path), data, bytearray(data), memoryview(data), io.BytesIO(data), opened, picture]
        for form in forms:
            assert (session.run(form) == want).all(), type(form)
    with Image.open(path) as picture:
        many = session.run([path, data, io.BytesIO(data), picture, pixels])
    assert (many == want).all()
    assert len(many) == 5


def test_a_pillow_photo_is_turned_as_its_file_is(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)).save(path, exif=exif)
    with Image.open(path) as picture:
        assert (session.read(picture) == session.read(path)).all()


def test_what_holds_no_image_is_one_clear_error(session: Session) -> None:
    for bad in (b"", b"noise", io.BytesIO(b"noise")):
        with pytest.raises(LapisError, match=r"cannot read image of \d bytes"):
            session.run(bad)
    with pytest.raises(LapisError, match="mode 'rb'"):
        session.run(io.StringIO("text"))  # type: ignore[arg-type]


def test_a_first_answer_loads_nothing_that_it_does_not_use() -> None:
    script = (
        "import sys; from lapis import Session; from lapis.assets import FOLDER\n"
        "Session('lapis_tiny.imagenet').predict(FOLDER / 'photos' / 'cat.webp')\n"
        "print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    slow = {"csv", "difflib", "hashlib", "safetensors", "torch", "PIL.TiffImagePlugin", "PIL.AvifImagePlugin"}
    assert not slow & set(loaded)

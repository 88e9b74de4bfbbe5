"""The live page in a real browser: the engine in the tab answers as the session does, wherever a picture comes from."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks.synthetic import random_network
from lapis import Session, assets, pack
from lapis.data.packaged import CIFAR10_CLASSES, packaged_images
from lapis.deploy.network import Network
from lapis.errors import LapisError
from lapis.preprocess import Pixels
from lapis.report.page import live
from lapis.report.page.explain import explain_network
from lapis.report.page.live import LivePicture, live_payload, packaged_samples, render_live, write_live_page
from lapis.report.page.page import fill, payload, write_html
from lapis.trace import POINTS
from tests.networks import small_config

NAME = "lapis_tiny.cifar10"
# Sums are taken in another order than in Python, and the rollout of the page in Python is rounded to six digits.
RELATIVE, ROUNDED = 1e-12, 2e-5

RUN = """async () => {
    const { data, codes } = Lapis.run;
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", codes));
    const hex = [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    return {integers: data.integers.map(String), codes: hex, answer: document.getElementById("answer").textContent};
}"""
FILE = """([name, type, text]) => {
    const files = new DataTransfer();
    files.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name, {type}));
    return files;
}"""


def png(image: Pixels) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


def expected(session: Session, image: Pixels, min_score: float = 0.0) -> dict[str, Any]:
    """What RUN must give."""
    [(best, *_)] = session.predict_each([image], top_k=1)
    name = best.label if session.class_names else f"class {best.label}"
    logits, trace = session.watch_integers(image)
    blocks = range(session.config.depth)
    codes = b"".join(trace[block, point].astype(np.int8).tobytes() for block in blocks for point in POINTS)
    return {
        "integers": [str(logit) for logit in logits[0]],
        "codes": hashlib.sha256(codes).hexdigest(),
        "answer": "none of these" if best.score < min_score else name,
    }


def shown(page: Any) -> dict[str, Any]:
    """What the page shows now."""
    found: dict[str, Any] = page.evaluate(RUN)
    return found


@pytest.fixture(scope="module")
def network(explain_deployed: Callable[[str], Any]) -> Network:
    found: Network = explain_deployed("relative").source
    return found


@pytest.fixture
def page(network: Network, open_file: Callable[..., Any], tmp_path: Path) -> Any:
    """The page of a small network with position delays, which averages its patches."""
    write_html(
        tmp_path / "live.html", render_live(network, pack.pack(network), "small", packaged_samples(CIFAR10_CLASSES))
    )
    opened = open_file(tmp_path / "live.html")
    opened.evaluate("Lapis.ready")
    return opened


@pytest.fixture
def photo() -> Pixels:
    """A picture that is not square."""
    return np.random.default_rng(4).integers(0, 256, (70, 51, 3), dtype=np.uint8)


def give(page: Any, event: str, name: str, kind: str, content: bytes) -> None:
    """Drop or paste a file, and wait until the page has dealt with it."""
    words = [name, kind, base64.b64encode(content).decode()]
    make = "new DragEvent('drop', {dataTransfer: files, bubbles: true, cancelable: true})"
    if event == "paste":
        make = "new ClipboardEvent('paste', {clipboardData: files, bubbles: true})"
    page.evaluate(f"async (words) => {{ const files = ({FILE})(words); document.body.dispatchEvent({make}); }}", words)
    page.locator("#live-status").get_by_text(name if event == "drop" else "pasted picture").wait_for()


def test_ten_images_have_the_codes_and_logits_of_the_session(open_file: Callable[..., Any], tmp_path: Path) -> None:
    write_live_page(tmp_path / "live.html", NAME)
    opened, session = open_file(tmp_path / "live.html"), Session(NAME)
    opened.evaluate("Lapis.ready")
    samples = packaged_samples(CIFAR10_CLASSES)
    assert len(samples) == opened.locator(".sample").count() == 10
    for index, sample in enumerate(samples):
        opened.locator(".sample").nth(index).click()
        opened.locator("#live-status").get_by_text(sample.name).wait_for()
        assert shown(opened) == expected(session, sample.image, assets.min_score(NAME) or 0.0)
    assert "ms per image" in opened.inner_text("#live-time")
    assert "relaxed" in opened.inner_text("footer")


def test_a_picture_of_any_size_may_be_chosen_dropped_and_pasted(page: Any, network: Network, photo: Pixels) -> None:
    session = Session(network)
    page.set_input_files("#file", {"name": "chosen.png", "mimeType": "image/png", "buffer": png(photo)})
    page.locator("#live-status").get_by_text("chosen.png").wait_for()
    assert shown(page) == expected(session, photo)
    give(page, "drop", "dropped.png", "image/png", png(photo[:33]))
    assert shown(page) == expected(session, photo[:33])
    give(page, "paste", "any.png", "image/png", png(photo[:, :20]))
    assert shown(page) == expected(session, photo[:, :20])
    assert page.evaluate("Lapis.run.data.picture") == "pasted picture"


def test_what_is_no_picture_is_said_and_the_page_stays(page: Any) -> None:
    before = shown(page)
    give(page, "drop", "notes.txt", "text/plain", b"no picture")
    assert page.inner_text("#live-status") == (
        "notes.txt cannot be explained: it is not a picture that this browser reads; use PNG, JPEG or WebP."
    )
    assert shown(page) == before


def test_the_camera_is_classified_until_it_stops(page: Any, network: Network) -> None:
    page.evaluate("""() => {
        const canvas = Object.assign(document.createElement("canvas"), {width: 64, height: 48});
        const pen = canvas.getContext("2d");
        setInterval(() => { pen.fillStyle = "#206040"; pen.fillRect(0, 0, 64, 48); }, 20);
        navigator.mediaDevices.getUserMedia = async () => canvas.captureStream(30);
    }""")
    page.locator("#camera").click()
    page.locator("#camera[aria-pressed=true]").wait_for()
    page.locator("#source").get_by_text("camera").wait_for()
    assert page.locator("#video").is_visible()
    page.locator("#live-status").get_by_text("The camera shows:").wait_for()
    assert page.inner_text("#evidence-says").startswith("The evidence takes many runs")
    page.get_by_role("button", name="Stop the camera").click()
    page.evaluate("Lapis.live.weighed")
    assert page.locator("#video").is_hidden()
    assert page.inner_text("#evidence-says").startswith("By occlusion")
    assert (
        len({tuple(pixel) for pixel in np.reshape(page.evaluate("[...Lapis.run.data.pixels]"), (-1, 3)).tolist()}) <= 4
    )


def test_without_a_camera_the_page_says_what_to_do(page: Any) -> None:
    page.locator("#camera").click()
    page.locator("#live-status").get_by_text("gives this page no camera").wait_for()


@pytest.mark.parametrize("name", ["unsigned", "signed", "relative", "table"])
def test_figures_of_the_tab_are_those_of_python(
    explain_deployed: Callable[[str], Any], open_file: Callable[..., Any], photo: Pixels, tmp_path: Path, name: str
) -> None:
    network = explain_deployed(name).source
    write_html(tmp_path / "live.html", render_live(network, pack.pack(network), "small", [LivePicture(photo, "photo")]))
    page = open_file(tmp_path / "live.html")
    page.evaluate("Lapis.ready")
    page.evaluate("Lapis.live.weighed")
    found = page.evaluate("(({pixels, engines, file, integers, ...data}) => data)(Lapis.run.data)")
    wanted = payload(explain_network(network, photo, evidence=False))
    for same in ("fired", "neurons", "classes", "blocks", "points", "leak", "readout", "decides", "config"):
        assert found[same] == wanted[same], same
    np.testing.assert_array_equal(found["logits"], wanted["logits"])
    np.testing.assert_allclose(found["rollout"], wanted["rollout"], rtol=ROUNDED)
    np.testing.assert_allclose(found["int8_ratio"], wanted["int8_ratio"], rtol=RELATIVE)
    for ours, theirs in zip(found["energy"], wanted["energy"], strict=True):
        assert ours["convention"] == theirs["convention"]
        np.testing.assert_allclose(ours["energy_mj"], theirs["energy_mj"], rtol=RELATIVE)
        for name in ("ratio", "quantized_ratio", "skipping_ratio", "latency_steps"):
            np.testing.assert_allclose(ours[name], theirs[name], rtol=RELATIVE)
        assert [row["operator"] for row in ours["rows"]] == [row["operator"] for row in theirs["rows"]]
        for kind in ("mj", "count"):
            counted, priced = ([row["ours"][kind] for row in made["rows"]] for made in (ours, theirs))
            np.testing.assert_allclose(counted, priced, rtol=RELATIVE)


def test_evidence_of_the_tab_is_that_of_python(
    explain_deployed: Callable[[str], Any], open_file: Callable[..., Any], photo: Pixels, tmp_path: Path
) -> None:
    network = explain_deployed("signed").source
    write_html(tmp_path / "live.html", render_live(network, pack.pack(network), "small", [LivePicture(photo, "photo")]))
    page = open_file(tmp_path / "live.html")
    page.evaluate("Lapis.ready")
    page.evaluate("Lapis.live.weighed")
    found = page.evaluate("Lapis.run.data.evidence")
    wanted = payload(explain_network(network, photo))["evidence"]
    assert {name: found[name] for name in ("says", "side")} == {name: wanted[name] for name in ("says", "side")}
    assert [each["index"] for each in found["classes"]] == [each["index"] for each in wanted["classes"]]
    for ours, theirs in zip(found["classes"], wanted["classes"], strict=True):
        np.testing.assert_allclose(ours["score"], theirs["score"], rtol=RELATIVE)
        # Python stores five digits.
        np.testing.assert_allclose(ours["values"], theirs["values"], rtol=1e-4, atol=1e-9)
    assert page.locator(".proof").count() == len(wanted["classes"])


def test_choices_stay_when_another_picture_comes_and_panels_follow_it(page: Any, photo: Pixels) -> None:
    page.evaluate("Lapis.page.set({block: 1, head: 2, query: 5})")
    give(page, "drop", "dropped.png", "image/png", png(photo))
    assert page.inner_text("#where") == "Block 1, head 2: where the patch row 1, column 1 looks"
    width = page.evaluate("Lapis.run.C")
    assert f"{width} of {width} codes equal what the network fired" in page.inner_text("#readout-says")
    pictures = page.evaluate("[...document.querySelectorAll('#input, #under')].map((image) => image.src)")
    assert set(pictures) == {page.evaluate("Lapis.run.data.image")}
    page.locator(".cell").first.press("ArrowRight")
    second = "document.activeElement === document.querySelectorAll('button.cell')[1]"
    assert page.evaluate(second)
    give(page, "drop", "again.png", "image/png", png(photo[:40]))
    assert page.evaluate(second)


def test_keys_alone_choose_a_sample(page: Any) -> None:
    page.locator(".sample").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    name = packaged_samples(CIFAR10_CLASSES)[1].name
    page.locator("#live-status").get_by_text(name).wait_for()
    assert page.get_by_role("button", name=name).count() == 1
    assert page.locator("#live-status").get_attribute("role") == "status"


@pytest.fixture
def open_broken(chromium: Any, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """open_broken(text) -> what a page that cannot start says; its complaint in the console is right."""
    context = chromium.new_context()

    def open_it(text: str) -> str:
        write_html(tmp_path / "broken.html", text)
        page = context.new_page()
        page.goto((tmp_path / "broken.html").as_uri())
        page.evaluate("Lapis.ready.catch(() => {})")
        said: str = page.inner_text("#trouble")
        return said

    yield open_it
    context.close()


def test_an_engine_that_answers_wrongly_is_not_used(
    network: Network, open_file: Callable[..., Any], open_broken: Callable[[str], str], tmp_path: Path
) -> None:
    data = live_payload(network, pack.pack(network), "small", packaged_samples(CIFAR10_CLASSES))
    right = data["first_logits"]
    broken = base64.b64encode(b"\0asm\1\0\0\0\xff").decode()

    def page_with(changes: dict[str, Any]) -> str:
        return fill("explain", "small", data | changes, live.LIVE_SCRIPTS, live=True)

    unknown = {"name": "broken", "code": broken}
    write_html(tmp_path / "live.html", page_with({"engines": [unknown, data["engines"][1]]}))
    page = open_file(tmp_path / "live.html")
    page.evaluate("Lapis.ready")
    assert "(WebAssembly, 128-bit vectors)" in page.inner_text("footer")
    said = open_broken(page_with({"first_logits": [*right[:-1], str(int(right[-1]) + 1)]}))
    assert "could not be read: no engine gives the right answer here" in said


def test_a_damaged_network_in_the_page_is_one_clear_error(network: Network, open_broken: Callable[[str], str]) -> None:
    said = open_broken(render_live(network, pack.pack(network)[:-1], "small", packaged_samples(CIFAR10_CLASSES)))
    assert "the last tensor does not end at the end of the file (rule 35)" in said


def test_a_build_without_the_engine_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(live, "MODULES", {"missing.wasm": "nothing"})
    with pytest.raises(LapisError, match=r"has no missing\.wasm.*make wasm"):
        write_live_page(tmp_path / "live.html", NAME)
    assert not (tmp_path / "live.html").exists()


def test_the_page_opens_on_the_given_picture(tmp_path: Path) -> None:
    Image.fromarray(packaged_images().pixels[7]).save(tmp_path / "mine.png")
    write_live_page(tmp_path / "live.html", NAME, tmp_path / "mine.png")
    text = (tmp_path / "live.html").read_text(encoding="utf-8")
    assert '"samples":[{"name":"mine.png"' in text
    assert "default-src 'none'" in text


def test_a_photograph_is_one_of_a_thousand_classes(open_file: Callable[..., Any], tmp_path: Path) -> None:
    """The size of a network for photographs: 224 pixels, 196 patches, 1,000 classes."""
    config = small_config(image_size=224, patch_size=16, classes=1000, width=24, depth=2)
    names = tuple(f"thing {number}" for number in range(1000))
    network = dataclasses.replace(random_network(config), class_names=names)
    samples = packaged_samples(names)
    write_html(tmp_path / "live.html", render_live(network, pack.pack(network), "photos", samples))
    page, session = open_file(tmp_path / "live.html"), Session(network)
    page.evaluate("Lapis.ready")
    assert page.locator(".sample").count() == 5
    assert page.locator(".patch").count() == 196
    page.locator(".sample").nth(2).click()
    page.locator("#live-status").get_by_text(samples[2].name).wait_for()
    assert shown(page) == expected(session, samples[2].image)
    page.evaluate("Lapis.live.weighed")
    assert page.evaluate("Lapis.run.data.rollout.length") == 197
    assert "each tile of 2 × 2 patches" in page.inner_text("#evidence-says")
    assert "It knows 1,000 classes" in page.inner_text("#classes-says")

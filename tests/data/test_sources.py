"""Where data comes from, and that nothing unverified is unpacked."""

from __future__ import annotations

import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from lapis.data.open import download, open_images, resolve_data
from lapis.errors import LapisError


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Nothing on stderr."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The address and MD5 of a small archive on a local server."""
    folder = tmp_path / "served"
    folder.mkdir()
    with tarfile.open(folder / "data.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo("inner/file.txt")
        member.size = 5
        tar.addfile(member, io.BytesIO(b"hello"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    md5 = hashlib.md5((folder / "data.tar.gz").read_bytes()).hexdigest()
    yield f"http://127.0.0.1:{server.server_address[1]}/data.tar.gz", md5
    server.shutdown()
    server.server_close()


def test_a_download_is_verified_and_unpacked(tmp_path: Path, served: tuple[str, str]) -> None:
    download(*served, tmp_path / "cache")
    assert (tmp_path / "cache" / "inner" / "file.txt").read_text() == "hello"
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["inner"]


def test_a_wrong_checksum_unpacks_nothing(tmp_path: Path, served: tuple[str, str]) -> None:
    with pytest.raises(LapisError, match="MD5"):
        download(served[0], "0" * 32, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_without_a_network_the_error_says_how_to_get_the_data(tmp_path: Path) -> None:
    with pytest.raises(LapisError, match=r"cannot download.*--data"):
        download("http://127.0.0.1:9/nothing", "", tmp_path / "new" / "cache")
    assert list(tmp_path.iterdir()) == []


def test_the_option_wins_over_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAPIS_DATA", str(tmp_path / "elsewhere"))
    assert resolve_data(tmp_path, "cifar10") == tmp_path
    with pytest.raises(LapisError, match="elsewhere is not a folder"):
        open_images(resolve_data(None, "cifar10"), "test")


def test_imagenet_cannot_be_downloaded_and_says_so() -> None:
    with pytest.raises(LapisError, match=r"no data folder was given.*ImageNet"):
        resolve_data(None, "imagenet")

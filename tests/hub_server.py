"""A hub on this machine: enough of its protocol for real calls of huggingface_hub, over HTTP."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass
class Hub:
    """The repositories of the server, and what was asked of it. `damaged` files are sent with one bit changed."""

    address: str = ""
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)

    def commit(self, repository: str) -> str:
        """A hash of all files."""
        files = self.repositories[repository]
        return hashlib.sha1(b"".join(name.encode() + content for name, content in sorted(files.items()))).hexdigest()


@contextmanager
def running() -> Iterator[Hub]:
    """A server for the block, on a free port."""
    hub = Hub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    hub.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def etag(name: str, content: bytes) -> str:
    """The hash that the hub announces: SHA-256 for large files, git's for others."""
    if name.endswith(".safetensors"):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._file(with_content=False)

    def do_GET(self) -> None:
        self._file(with_content=True)

    def do_POST(self) -> None:
        path, body = self._path(), self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = self._chunks()
        if path == "/api/repos/create":
            wanted = json.loads(body)
            repository = f"{wanted['organization']}/{wanted['name']}"
            self.hub.repositories.setdefault(repository, {})
            self._json({"url": f"{self.hub.address}/{repository}"})
        elif path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
        elif "/preupload/" in path:
            named = [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
                     for one in json.loads(body)["files"]]  # fmt: skip
            self._json({"files": named})
        elif "/commit/" in path:
            repository = path.removeprefix("/api/models/").partition("/commit/")[0]
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    content = base64.b64decode(entry["value"]["content"])
                    self.hub.repositories[repository][entry["value"]["path"]] = content
            commit = self.hub.commit(repository)
            self._json({"commitUrl": f"{self.hub.address}/{repository}/commit/{commit}", "commitOid": commit})
        else:
            self._error(404, "")

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _path(self) -> str:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        return path

    def _file(self, with_content: bool) -> None:
        repository, found, rest = self._path().lstrip("/").partition("/resolve/")
        revision, _, name = rest.partition("/")
        files = self.hub.repositories.get(repository)
        if not found or files is None:
            return self._error(404, "RepoNotFound")
        commit = self.hub.commit(repository)
        if revision not in ("main", commit):
            return self._error(404, "RevisionNotFound")
        if name not in files:
            return self._error(404, "EntryNotFound", {"X-Repo-Commit": commit})
        content = files[name]
        headers = {"X-Repo-Commit": commit, "ETag": f'"{etag(name, content)}"'}
        if name in self.hub.damaged:
            content = content[:-1] + bytes([content[-1] ^ 1])
        return self._send(200, content, headers, with_content)

    def _json(self, content: Any) -> None:
        self._send(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _error(self, status: int, code: str, headers: dict[str, str] | None = None) -> None:
        self._send(status, b"", {"X-Error-Code": code, **(headers or {})})

    def _send(self, status: int, content: bytes, headers: dict[str, str], with_content: bool = True) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_content:
            self.wfile.write(content)

    def _chunks(self) -> bytes:
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

"""A hub on this machine: the few HTTP endpoints through which the hub's library finds and downloads models."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_right"

_INFO = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)(?:/revision/(?P<revision>[^/]+))?")
_TREE = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)/tree/(?P<revision>[^/]+)")
_FILE = re.compile(r"/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")


@dataclass
class Repository:
    """Files by name. Gated ones show their files to all and their content to the holder of `TOKEN` alone."""

    files: dict[str, bytes]
    gated: bool = False
    revisions: tuple[str, ...] = ("main", "v1", COMMIT)


@dataclass
class FakeHub:
    """`sent` has the path of each file whose content was asked for; `status` is answered to everything when set.

    `breaks` counts the downloads that end after half of what they should send.
    """

    repositories: dict[str, Repository] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)
    status: int | None = None
    breaks: int = 0
    url: str = ""


@contextmanager
def running_hub() -> Iterator[FakeHub]:
    """A hub that answers until the context ends."""
    hub = FakeHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _RefusedError(Exception):
    """The answer is an error: its status and the hub's code for it."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, *args: object) -> None:
        """Keep the output of tests clean."""

    def _answer(self) -> None:
        path = unquote(self.path.split("?")[0])
        try:
            if self.hub.status is not None:
                raise _RefusedError(self.hub.status, "")
            if match := _FILE.fullmatch(path):
                self._send_file(self._repository(match), match["file"])
            elif match := _TREE.fullmatch(path):
                self._send_json([_entry(name, body) for name, body in self._repository(match).files.items()])
            elif match := _INFO.fullmatch(path):
                self._send_json(_info(match["repo"], self._repository(match)))
            else:
                raise _RefusedError(404, "")
        except _RefusedError as error:
            self._send(error.status, b"", {"X-Error-Code": error.code})

    def _repository(self, match: re.Match[str]) -> Repository:
        repository = self.hub.repositories.get(match["repo"])
        if repository is None:
            raise _RefusedError(401, "RepoNotFound")
        if (match["revision"] or "main") not in repository.revisions:
            raise _RefusedError(404, "RevisionNotFound")
        return repository

    def _send_file(self, repository: Repository, name: str) -> None:
        if repository.gated and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise _RefusedError(401, "GatedRepo")
        if name not in repository.files:
            raise _RefusedError(404, "EntryNotFound")
        body = repository.files[name]
        if self.command == "GET":
            self.hub.sent.append(name)
        headers = {"ETag": f'"{_digest(body)}"', "X-Repo-Commit": COMMIT}
        start = int(re.sub(r"\D", "", self.headers.get("Range", "0")))
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        self._send(206 if start else 200, body[start:], headers, breaks=self.hub.breaks > 0)

    def _send_json(self, content: object) -> None:
        self._send(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, body: bytes, headers: dict[str, str], *, breaks: bool = False) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "GET":
            return
        if breaks:
            self.hub.breaks -= 1
            self.close_connection = True
        self.wfile.write(body[: len(body) // 2] if breaks else body)


def _info(name: str, repository: Repository) -> dict[str, object]:
    siblings = [
        {"rfilename": file, "size": len(body), "blobId": _digest(body)} for file, body in repository.files.items()
    ]
    return {"id": name, "modelId": name, "sha": COMMIT, "private": False, "tags": [], "siblings": siblings}


def _entry(name: str, body: bytes) -> dict[str, object]:
    return {"type": "file", "path": name, "size": len(body), "oid": _digest(body)}


def _digest(body: bytes) -> str:
    return hashlib.sha1(body).hexdigest()

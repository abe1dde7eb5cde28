"""A Hub on 127.0.0.1 with its failures: `fault` decides, request by request, what goes wrong.

Repositories live in memory. Large files (LFS) are served as the Hub serves
them: `/resolve/` answers with a redirect to a content address, with
`X-Linked-ETag`, `X-Linked-Size` and `X-Repo-Commit`; the content address
honours `Range`. `zoo/release/distributions.py` runs this file where only the
wheel is installed: it imports nothing but the standard library.
"""

import base64
import contextlib
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

BINARY = (".h5", ".safetensors", ".npz", ".png")
TOKEN = "hf_right"  # requests with this token may write


def sha256(content: bytes) -> str:
    """Returns the name of a large file."""
    return hashlib.sha256(content).hexdigest()


def git_sha1(content: bytes) -> str:
    """Returns the name that git gives a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Repository:
    """A repository of the Hub: commits with their files, the last one last, and tags."""

    private: bool = False
    commits: list[tuple[str, dict[str, bytes]]] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def head(self) -> str:
        """Name of the last commit."""
        return self.commits[-1][0]

    def commit(self, files: dict[str, bytes], removed: Collection[str] = ()) -> str:
        """Adds a commit of the head's files and these, without those that are removed; returns its name."""
        tree = {**(self.commits[-1][1] if self.commits else {}), **files}
        tree = {path: content for path, content in tree.items() if path not in removed}
        text = f"{len(self.commits)}{sorted((path, git_sha1(content)) for path, content in tree.items())}"
        self.commits.append((hashlib.sha1(text.encode()).hexdigest(), tree))
        return self.head

    def resolve(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        """Returns name and files of a commit or tag, or `None`."""
        commit_id = self.head if revision == "main" else self.tags.get(revision, revision)
        return next((commit for commit in self.commits if commit[0] == commit_id), None)


@dataclass(frozen=True)
class Fault:
    """A fault of one request.

    Attributes:
        status: Answer with this status instead.
        cut: Close the connection after this many bytes of the body.
        alter: Function on the body that is served, its announced hash unchanged.
        delay: Seconds to wait before every eighth of the body.
        wait: Seconds to wait before doing what was asked.
        announce: Bytes to announce more (or fewer) than there are.
    """

    status: int = 0
    cut: int | None = None
    alter: Callable[[bytes], bytes] | None = None
    delay: float = 0.0
    wait: float = 0.0
    announce: int = 0


class FakeHub:
    """The server: `fault(method, path)` may return a `Fault` for a request.

    A process that uses it needs the environment variables `HF_ENDPOINT` (its
    `url`) and `HF_HUB_DISABLE_XET=1` before it imports huggingface_hub, and to
    write, `HF_TOKEN` (`TOKEN`).

    Attributes:
        url: Its address.
        repositories: Dict from name to `Repository`.
        contents: Dict from sha256 to large file.
        requests: Method, path and the header Authorization of every request.
        resumed: The first byte of every resumed download.
        fault: The fault of each request; none at first.
    """

    def __init__(self):
        self.repositories: dict[str, Repository] = {}
        self.contents: dict[str, bytes] = {}
        self.requests: list[tuple[str, str, str]] = []
        self.resumed: list[int] = []
        self.fault: Callable[[str, str], Fault | None] = lambda method, path: None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": self}))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.content_url = self.url.replace("127.0.0.1", "localhost")  # another host, as the Hub's contents are
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add(self, name: str, files: dict[str, bytes], private: bool = False) -> str:
        """Adds a repository, or a commit to one; returns the commit."""
        repository = self.repositories.setdefault(name, Repository(private))
        return repository.commit(files)

    def files(self, name: str, revision: str = "main") -> dict[str, bytes]:
        """Returns the files of a repository.

        Args:
            name: The repository, e.g. `"me/net"`.
            revision: A commit or a tag. Defaults to the last commit.

        Raises:
            KeyError: If there is no such repository or revision.
        """
        resolved = self.repositories[name].resolve(revision)
        if resolved is None:
            raise KeyError(f"{name} has no revision {revision}")
        return resolved[1]

    def count(self, method: str, part: str = "") -> int:
        """Returns how many requests of a method had a part in their path."""
        return sum(m == method and part in path for m, path, _ in self.requests)


class Handler(BaseHTTPRequestHandler):
    """Answers requests; one method per route."""

    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError, TimeoutError):  # a client that was killed or gave up on a slow body
            super().handle()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or self._chunks()
        self.hub.requests.append((self.command, path, self.headers.get("Authorization", "")))
        self.route(path, body)

    do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815, the base class's names

    def route(self, path: str, body: bytes) -> None:
        """Answers a request by the first route that fits its path, with what goes wrong."""
        self.fault = self.hub.fault(self.command, path) or Fault()
        time.sleep(self.fault.wait)
        if self.fault.status:
            return self.send(self.fault.status, b"injected", {"X-Error-Message": "injected"})
        for method, pattern, route in _ROUTES:
            match = re.fullmatch(pattern, path)
            if match and method == self.command.replace("HEAD", "GET"):
                return route(self, *match.groups(), body)
        return self.send(404, b"no such route")

    def start(self, status: int, length: int, headers: Mapping[str, str] | None = None) -> None:
        """Sends status and headers."""
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def send(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """Sends an answer."""
        body = self.fault.alter(body) if self.fault.alter and self.command == "GET" else body
        self.start(status, len(body) + self.fault.announce, headers)
        if self.command == "HEAD":
            return
        if self.fault.cut is not None or self.fault.announce:
            self.close_connection = True
        body = body if self.fault.cut is None else body[: self.fault.cut]
        step = max(1, len(body) // 8) if self.fault.delay else max(1, len(body))
        for start in range(0, len(body), step):
            time.sleep(self.fault.delay)
            self.wfile.write(body[start : start + step])
            self.wfile.flush()

    def _chunks(self) -> bytes:
        """A body sent in chunks, as streams are."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return b""
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _json(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.send(status, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def _may(self, write: bool = False, private: bool = False) -> bool:
        """Whether the token allows it; answers as the Hub does if it does not."""
        if self.headers.get("Authorization") == f"Bearer {TOKEN}" or not (write or private):
            return True
        self.send(401, b"", {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
        return False

    def _repository(self, name: str) -> "Repository | None":
        repository = self.hub.repositories.get(name)
        if repository is None:
            self.send(404, b"", {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
        elif not self._may(private=repository.private):
            return None
        return repository

    def _commit_of(self, name: str, revision: str):
        repository = self._repository(name)
        resolved = repository and repository.resolve(revision)
        if repository and resolved is None:
            self.send(404, b"", {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"})
        return resolved

    def create(self, body: bytes) -> None:
        if not self._may(write=True):
            return None
        request = json.loads(body)
        name = f"{request['organization']}/{request['name']}"
        url = {"url": f"{self.hub.url}/{name}"}
        if name in self.hub.repositories:
            return self._json({**url, "error": "You already created this model repo"}, 409)
        self.hub.add(name, {".gitattributes": b"*.h5 filter=lfs\n"}, request.get("visibility") == "private")
        return self._json(url)

    def info(self, name: str, revision: str | None, _: bytes) -> None:
        commit = self._commit_of(name, revision or "main")
        if commit:
            siblings = [{"rfilename": path} for path in commit[1]]
            private = self.hub.repositories[name].private
            self._json({"id": name, "modelId": name, "sha": commit[0], "siblings": siblings, "private": private})

    def tree(self, name: str, revision: str, _: bytes) -> None:
        commit = self._commit_of(name, revision)
        if commit:
            self._json([_entry(path, content) for path, content in commit[1].items()])

    def refs(self, name: str, _: bytes) -> None:
        repository = self._repository(name)
        if repository:
            tags = [{"name": t, "ref": f"refs/tags/{t}", "targetCommit": c} for t, c in repository.tags.items()]
            main = {"name": "main", "ref": "refs/heads/main", "targetCommit": repository.head}
            self._json({"branches": [main], "converts": [], "tags": tags})

    def tag(self, name: str, revision: str, body: bytes) -> None:
        if not self._may(write=True):
            return None
        commit, tag = self._commit_of(name, revision), json.loads(body)["tag"]
        tags = self.hub.repositories[name].tags
        if tag in tags:
            return self._json({"error": "Tag already exists"}, 409)
        tags[tag] = commit[0]
        return self._json({})

    def preupload(self, name: str, revision: str, body: bytes) -> None:
        if self._may(write=True) and self._commit_of(name, revision):
            files = json.loads(body)["files"]
            modes = [
                {
                    "path": f["path"],
                    "uploadMode": "lfs" if f["path"].endswith(BINARY) else "regular",
                    "shouldIgnore": False,
                }
                for f in files
            ]
            self._json({"files": modes})

    def validate_card(self, body: bytes) -> None:
        header = json.loads(body)["content"].split("---\n")[1]
        good = "library_name:" in header  # of a missing licence the Hub only warns
        self._json({"errors": [] if good else [{"message": "incomplete header"}], "warnings": []})

    def lfs_batch(self, name: str, body: bytes) -> None:
        if self._may(write=True) and self._repository(name):
            objects = [dict(entry) for entry in json.loads(body)["objects"]]
            for entry in objects:
                if entry["oid"] not in self.hub.contents:  # what is there already need not come again
                    entry["actions"] = {"upload": {"href": f"{self.hub.url}/lfs/{entry['oid']}"}}
            self._json({"transfer": "basic", "objects": objects})

    def lfs_put(self, oid: str, body: bytes) -> None:
        if sha256(body) != oid:
            return self.send(400, b"content does not match its name")
        self.hub.contents[oid] = body
        return self.send(200)

    def commit(self, name: str, revision: str, body: bytes) -> None:
        if not self._may(write=True):
            return None
        commit, files, removed = self._commit_of(name, revision), {}, []
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "header" and value.get("parentCommit", commit[0]) != commit[0]:
                return self._json({"error": "A commit has happened since"}, 412)
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            if line["key"] == "lfsFile":
                if value["oid"] not in self.hub.contents:
                    return self._json({"error": f"content {value['oid']} was never uploaded"}, 400)
                files[value["path"]] = self.hub.contents[value["oid"]]
            if line["key"] == "deletedFile":
                if value["path"] not in commit[1]:
                    return self._json({"error": f"there is no {value['path']}"}, 400)
                removed.append(value["path"])
        oid = self.hub.repositories[name].commit(files, removed)
        return self._json({"success": True, "commitOid": oid, "commitUrl": f"{self.hub.url}/{name}/commit/{oid}"})

    def resolve(self, name: str, revision: str, path: str, _: bytes) -> None:
        commit = self._commit_of(name, revision)
        if not commit:
            return None
        known = {"X-Repo-Commit": commit[0]}
        if path not in commit[1]:
            return self.send(404, b"", {**known, "X-Error-Code": "EntryNotFound", "X-Error-Message": "No entry"})
        content = commit[1][path]
        if not path.endswith(BINARY):
            return self.send(200, content, {**known, "ETag": f'"{git_sha1(content)}"'})
        self.hub.contents.setdefault(sha256(content), content)
        linked = {"X-Linked-ETag": f'"{sha256(content)}"', "X-Linked-Size": str(len(content))}
        return self.send(302, b"", {**known, **linked, "Location": f"{self.hub.content_url}/content/{sha256(content)}"})

    def content(self, oid: str, _: bytes) -> None:
        body = self.hub.contents[oid]
        byte_range = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if not byte_range:
            return self.send(200, body, {"Accept-Ranges": "bytes", "ETag": f'"{oid}"'})
        start = int(byte_range[1])
        self.hub.resumed.append(start)
        return self.send(206, body[start:], {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"})


def _entry(path: str, content: bytes):
    entry = {"type": "file", "path": path, "size": len(content), "oid": git_sha1(content)}
    if path.endswith(BINARY):
        entry["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 130}
    return entry


_NAME = r"([\w.-]+/[\w.-]+)"
_ROUTES = [
    ("POST", r"/api/repos/create", Handler.create),
    ("POST", r"/api/validate-yaml", Handler.validate_card),
    ("GET", rf"/api/models/{_NAME}/refs", Handler.refs),
    ("GET", rf"/api/models/{_NAME}/tree/([\w.-]+)/?", Handler.tree),
    ("POST", rf"/api/models/{_NAME}/tag/([\w.-]+)", Handler.tag),
    ("POST", rf"/api/models/{_NAME}/preupload/([\w.-]+)", Handler.preupload),
    ("POST", rf"/api/models/{_NAME}/commit/([\w.-]+)", Handler.commit),
    ("GET", rf"/api/models/{_NAME}(?:/revision/([\w.-]+))?", Handler.info),
    ("POST", rf"/{_NAME}\.git/info/lfs/objects/batch", Handler.lfs_batch),
    ("PUT", r"/lfs/(\w+)", Handler.lfs_put),
    ("GET", rf"/{_NAME}/resolve/([\w.-]+)/(.+)", Handler.resolve),
    ("GET", r"/content/(\w+)", Handler.content),
]

"""A Hub on 127.0.0.1 with its failures: `fault` decides, request by request, what goes wrong."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from keras_highway.hub.local import TOKEN as TOKEN
from keras_highway.hub.local import Handler, LocalHub
from keras_highway.hub.local import git_sha1 as git_sha1
from keras_highway.hub.local import sha256 as sha256


@dataclass(frozen=True)
class Fault:
    """What goes wrong with a request.

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


class _Faulty(Handler):
    hub: "FakeHub"

    def route(self, path, body):
        self.fault = self.hub.fault(self.command, path) or Fault()
        time.sleep(self.fault.wait)
        if self.fault.status:
            return self.send(self.fault.status, b"injected", {"X-Error-Message": "injected"})
        return super().route(path, body)

    def send(self, status, body=b"", headers=None):
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


class FakeHub(LocalHub):
    """The server; `fault(method, path)` may return a `Fault` for a request."""

    handler = _Faulty

    def __init__(self):
        self.fault: Callable[[str, str], Fault | None] = lambda method, path: None
        super().__init__()

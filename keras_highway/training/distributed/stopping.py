"""SIGTERM asks a run to stop: it saves its state and exits with a code of its own."""

import contextlib
import signal
import threading
from collections.abc import Iterator

USAGE_ERROR = 2  # an error with a name: a supervisor need not try again
EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: started again, the run resumes


class Stopped(SystemExit):
    """The run was stopped on request, and has saved its state."""

    def __init__(self):
        super().__init__(EXIT_CODE)


class Request:
    """Whether SIGTERM has requested that the process stop."""

    made = False


@contextlib.contextmanager
def stop_requests() -> Iterator[Request]:
    """Notes SIGTERM instead of dying of it; the handler that was there comes back at the end."""
    request = Request()
    if threading.current_thread() is not threading.main_thread():
        yield request  # only the main thread may handle signals
        return

    def note(_number, _frame):
        request.made = True

    before = signal.signal(signal.SIGTERM, note)
    try:
        yield request
    finally:
        signal.signal(signal.SIGTERM, before)

"""SIGTERM asks a run to stop: it saves its state and exits with a code of its own."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

USAGE_ERROR = 2  # a known error: a supervisor does not try again
CLOSED_PIPE = 141  # the reader of the output closed it: as `_support.closed_pipe`, without which the supervisor runs
EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: started again, the run resumes


def is_one_of_several() -> bool:
    """Whether this process is connected with others by JAX."""
    jax = sys.modules.get("jax")  # not imported for this
    return jax is not None and jax.distributed.is_initialized() and jax.process_count() > 1


class Stopped(SystemExit):
    """The run was stopped on request, and has saved its state."""

    def __init__(self):
        super().__init__(EXIT_CODE)


class Request:
    """A request to stop, made by SIGTERM."""

    made = False

    def install(self) -> None:
        """Handle SIGTERM on the main thread; call it again after JAX's and TensorFlow's services have started."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._note)

    @contextlib.contextmanager
    def honoured(self) -> Iterator[None]:
        """Raise `Stopped` at its end if a request came too late for a run, so that the process trains no other."""
        yield
        if self.made:
            raise Stopped

    def _note(self, _number: int, _frame: Any) -> None:
        self.made = True


@contextlib.contextmanager
def stop_requests() -> Iterator[Request]:
    """Note SIGTERM instead of dying; restore the handler at the end. An inner block shares the outer one's request."""
    before = signal.getsignal(signal.SIGTERM)
    outer = getattr(before, "__self__", None)
    request = outer if isinstance(outer, Request) else Request()
    request.install()
    try:
        yield request
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)

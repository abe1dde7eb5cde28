"""Keeps TensorFlow's start-up notices off the user's terminal; warnings and errors stay.

By hand: neither absl nor TensorFlow has a setting for what is written from C++
before logging is set up.
"""

import contextlib
import glob
import os
import re
import sys
import tempfile
from collections.abc import Iterator

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_ASKED = ("1", "2", "3")  # levels at which nobody wants to read information
_LOADING = b"loading Keras ..."
# Information (I...) that TensorFlow 2.21 writes at import even at level 3.
_NOTICE = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog\(\) is called"
    rb"|I\d{4} [\d:.]+ +\d+ [\w./]+:\d+\] "
    rb"|To enable the following instructions: "
)
# What it says of missing GPU drivers and libraries, no news where there is no GPU.
_OF_GPUS = re.compile(rb"[EW]\d{4} [\d:.]+ +\d+ (cuda_\w+|gpu_device)\.cc:\d+\] ")
_DEVICES = ("/dev/nvidia[0-9]*", "/dev/dxg")  # of Linux, and of Linux in Windows

_begun: list[bool] = []  # whether this process is a program of ours, whose stderr may be held back


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """Runs the imports inside without TensorFlow's notices on stderr; all else that they write follows at the end.

    Sets `TF_CPP_MIN_LOG_LEVEL` to 1, no information but warnings and errors,
    and does nothing where the user has set it to 0: then every notice is there
    to see. The notices come from C++, so that it is the file descriptor that
    is held back, not `sys.stderr`. TensorFlow looks for GPUs here, too, and
    complains where it finds no driver: without a GPU that is a notice.

    On a terminal a line says that something is being loaded.
    """
    if os.environ.setdefault(_LEVEL, "1") not in _ASKED:
        yield
        return
    _begun.append(True)
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held:
        stderr = os.dup(2)
        on_terminal = os.isatty(stderr)
        if on_terminal:
            os.write(stderr, _LOADING + b"\r")
        os.dup2(held.fileno(), 2)
        try:
            yield
            _look_for_devices()
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            if on_terminal:
                os.write(2, b" " * len(_LOADING) + b"\r")
            held.seek(0)
            for line in held:
                if _is_news(line):
                    os.write(2, line)


@contextlib.contextmanager
def quiet_again() -> Iterator[None]:
    """As `quiet_start`, for what is imported later, in programs that began with it; in others nothing is held back."""
    with quiet_start() if _begun else contextlib.nullcontext():
        yield


def _is_news(line: bytes) -> bool:
    return not _NOTICE.match(line) and (_has_gpu() or not _OF_GPUS.match(line))


def _has_gpu() -> bool:
    return any(map(glob.glob, _DEVICES))


def _look_for_devices() -> None:
    """Lets TensorFlow, where it computes, list its devices now: it does so once, on the way to the first tensor."""
    keras, tensorflow = (sys.modules.get(name) for name in ("keras", "tensorflow"))
    if keras is not None and tensorflow is not None and keras.backend.backend() == "tensorflow":
        tensorflow.config.list_physical_devices()

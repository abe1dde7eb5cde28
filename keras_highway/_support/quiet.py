"""Keeps TensorFlow's start-up notices off the user's terminal; warnings and errors stay.

By hand: neither absl nor TensorFlow has a setting for what is written from C++
before logging is set up.
"""

import contextlib
import glob
import os
import re
import subprocess
import sys
from collections.abc import Iterator

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
_QUIET_LEVELS = ("1", "2", "3")  # levels without information
_LOADING = "loading Keras ..."
# Information (I...) that TensorFlow 2.21 writes at import even at level 3, and what it writes of each LiteRT file.
_NOTICE = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog\(\) is called"
    rb"|I\d{4} [\d:.]+ +\d+ [\w./]+:\d+\] "
    rb"|To enable the following instructions: "
    rb"|W\d{4} [\d:.]+ +\d+ tf_tfl_flatbuffer_helpers\.cc:\d+\] Ignored (output_format|drop_control_dependency)\.$"
    rb"|INFO: Created TensorFlow Lite XNNPACK delegate for CPU\.$"
)
# Its messages about missing GPU drivers and libraries, which are expected where there is no GPU.
_OF_GPUS = re.compile(rb"[EW]\d{4} [\d:.]+ +\d+ (cuda_\w+|gpu_device)\.cc:\d+\] ")
_DEVICES = ("/dev/nvidia[0-9]*", "/dev/dxg")  # of Linux, and of Linux in Windows

# A process of its own reads what is written: the last messages of a program that aborts are not lost.
_FILTER = r"""
import re, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
dropped, clear = re.compile(sys.argv[1].encode()), sys.argv[2].encode()
out = open(2, "wb", buffering=0, closefd=False)
for line in sys.stdin.buffer:
    if not dropped.match(line):
        out.write(clear + line)
        clear = b""
"""
_LAST_WORDS = 2.0  # seconds; a process that was started meanwhile may keep the filter longer

_begun: list[bool] = []  # whether this process is a program of ours, whose stderr may be filtered


@contextlib.contextmanager
def quiet_start(doing: str = _LOADING) -> Iterator[None]:
    """Runs the imports inside without TensorFlow's notices on stderr; all else that they write is passed on at once.

    Sets `TF_CPP_MIN_LOG_LEVEL` to 1, no information but warnings and errors,
    and does nothing where the user has set it to 0: then every notice is there
    to see. The notices come from C++, so that it is the file descriptor that
    is filtered, not `sys.stderr`, by a process that lives as long as the
    imports and passes on the last messages of a program that aborts.
    TensorFlow looks for GPUs here, too, and complains where it finds no
    driver: without a GPU that is a notice.

    Args:
        doing: What a terminal shows meanwhile.
    """
    if os.environ.setdefault(_LEVEL, "1") not in _QUIET_LEVELS:
        yield
        return
    _begun.append(True)
    sys.stderr.flush()
    on_terminal = os.isatty(2)
    clear = b" " * len(doing) + b"\r" if on_terminal else b""
    if on_terminal:
        os.write(2, doing.encode() + b"\r")
    try:
        with _filtered(clear):
            yield
            _look_for_devices()
    finally:
        os.write(2, clear)


@contextlib.contextmanager
def _filtered(clear: bytes) -> Iterator[None]:
    """Filters what is written to stderr inside; not at all where no process can be started."""
    dropped = _NOTICE.pattern if _has_gpu() else _NOTICE.pattern + b"|" + _OF_GPUS.pattern
    command = [sys.executable, "-I", "-S", "-c", _FILTER, dropped.decode(), clear.decode()]
    try:
        reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    except OSError:
        yield
        return
    stderr = os.dup(2)
    os.dup2(reader.stdin.fileno(), 2)
    reader.stdin.close()  # its only writer is stderr now: the filter ends with it
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)
        os.close(stderr)
        with contextlib.suppress(subprocess.TimeoutExpired):
            reader.wait(_LAST_WORDS)


@contextlib.contextmanager
def quiet_again(doing: str = _LOADING) -> Iterator[None]:
    """As `quiet_start`, for what is done later, in programs that began with it; in others nothing is filtered."""
    with quiet_start(doing) if _begun else contextlib.nullcontext():
        yield


def _has_gpu() -> bool:
    return any(map(glob.glob, _DEVICES))


def _look_for_devices() -> None:
    """Lets TensorFlow, where it computes, list its devices now: it does so once, on the way to the first tensor."""
    keras, tensorflow = (sys.modules.get(name) for name in ("keras", "tensorflow"))
    if keras is not None and tensorflow is not None and keras.backend.backend() == "tensorflow":
        tensorflow.config.list_physical_devices()

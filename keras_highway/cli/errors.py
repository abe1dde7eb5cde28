"""What went wrong on the command line, and the exit code it means."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

OK = 0
SOME_FAILED = 1  # `verify` found a difference
USAGE = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells have it


class UsageError(Exception):
    """The command cannot be executed as it was entered; becomes one line on stderr and exit code 2."""


class LanguageModelError(UsageError):
    """The weights are of a language model, and the command is for images; `evaluate` knows what to do with them."""

    def __init__(self, weights: object):
        super().__init__(
            f"{str(weights)!r} is a language model: it reads words, not images. Use `python -m keras_highway lm "
            "--help` or keras_highway.CharLM."
        )


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """Turns what the package raises about a name, a file or a number that the user passed into a `UsageError`.

    It encloses the calls that use such a name, and no others: an error
    from elsewhere is a bug and shows its traceback.
    """
    try:
        yield
    except PermissionError as error:
        message = f"{error.filename}: permission denied: make it accessible for you, or name another place"
        raise UsageError(message if error.filename else str(error)) from error
    except (ValueError, OSError, ImportError) as error:
        raise UsageError(" ".join(str(error).split())) from error


def check_out(path: str, suffix: str, option: str = "--out") -> None:
    """Raises a `UsageError` if a file cannot be written, before anything is computed for it."""
    folder = Path(path).parent
    if not path.endswith(suffix):
        raise UsageError(f"{option} must name a {suffix} file. Received: {option} {path}")
    if Path(path).is_dir():
        raise UsageError(f"{option} names a folder, not a file. Received: {option} {path}")
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder} to write into: make it first. Received: {option} {path}")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"The folder {folder} may not be written to. Received: {option} {path}")

"""How a command ends whose reader has closed its output, as `| head -1` does, or whose output finds no space."""

import errno
import os
import sys

CLOSED_PIPE = 141  # 128 + SIGPIPE, as shells have it


def open_missing() -> None:
    """Opens stdin, stdout and stderr onto nothing where the program began without them (`<&- >&-`).

    Else the next file that is opened would have their numbers, and what C++
    code says would be written into it.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (as long as the process)


def is_closed() -> bool:
    """Whether it is stdout whose reader is gone: what could not be written is still to be."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return True
    return False


def is_full(error: OSError) -> bool:
    """Whether an error is of stdout, which goes to a full disk: it does not take a line feed either."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT) or error.filename is not None:
        return False
    try:
        print(flush=True)  # what could not be written may have been dropped: a flush alone would do nothing
    except OSError as again:
        return again.errno == error.errno
    return False


def drop_output() -> None:
    """Lets what is still to be written to stdout vanish: Python flushes it once more on its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

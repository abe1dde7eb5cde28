"""How a command ends whose reader has closed its output, as `| head -1` does."""

import os
import sys

CLOSED_PIPE = 141  # 128 + SIGPIPE, as shells have it


def is_closed() -> bool:
    """Whether it is stdout whose reader is gone: what could not be written is still to be."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return True
    return False


def drop_output() -> None:
    """Lets what is still to be written to stdout vanish: Python flushes it once more on its way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

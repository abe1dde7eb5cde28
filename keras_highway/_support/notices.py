"""Warnings that are for the user alone: Python's, and on the command line one line each."""

import contextlib
import sys
import warnings
from collections.abc import Generator
from typing import Any

from keras_highway._support.outside_text import visible


class Notice(UserWarning):
    """A note on what the user requested; nothing is wrong with the program. Every warning of the package is one.

    Example:

    >>> warnings.simplefilter("ignore", kh.Notice)
    """


@contextlib.contextmanager
def as_lines() -> Generator[None]:
    """Shows notices as lines on stderr, without file and line of the program."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")  # of odd images: our own messages are more specific
        show_others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any) -> None:
            if issubclass(category, Notice):
                print(f"note: {visible(message)}", file=sys.stderr)
            else:
                show_others(message, category, *args, **kwargs)

        warnings.showwarning = show
        yield

"""Keeps TensorFlow's start-up notices off the user's terminal.

By hand: neither absl nor TensorFlow has a setting for what is written from C++
before logging is set up.
"""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
# Information (I...) that TensorFlow 2.21 writes at import even at level 3; warnings and errors are not among it.
_NOTICE = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog\(\) is called"
    rb"|I\d{4} [\d:.]+ +\d+ [\w./]+:\d+\] "
    rb"|To enable the following instructions: "
)


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """Runs the imports inside without TensorFlow's notices on stderr; all else that they write follows at the end.

    Sets `TF_CPP_MIN_LOG_LEVEL` to 3, TensorFlow's quietest, and does nothing
    where the user has set it to another level: with 0, every notice is there
    to see. The notices come from C++, so that it is the file descriptor that
    is held back, not `sys.stderr`.
    """
    if os.environ.setdefault(_LEVEL, "3") != "3":
        yield
        return
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held:
        stderr = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            held.seek(0)
            for line in held:
                if not _NOTICE.match(line):
                    os.write(2, line)

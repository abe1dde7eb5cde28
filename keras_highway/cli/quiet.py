"""Keeps TensorFlow's start-up notices off the user's terminal."""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator

_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
# Information (I...) that TensorFlow 2.21 writes at import whatever the level; warnings and errors are not among it.
_NOTICE = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog\(\) is called"
    rb"|I\d{4} [\d:.]+ +\d+ [\w./]+:\d+\] "
    rb"|To enable the following instructions: "
)


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """Runs the imports inside without TensorFlow's notices on stderr; all else that they write follows at the end.

    Does nothing where the user has set `TF_CPP_MIN_LOG_LEVEL`: with 0, every
    notice is there to see. The notices come from C++, so that it is the file
    descriptor that is held back, not `sys.stderr`.
    """
    if _LEVEL in os.environ:
        yield
        return
    os.environ[_LEVEL] = "3"
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

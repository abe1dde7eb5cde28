"""A disk that is full, for any user: a limit of the length of files."""

import contextlib
import resource


@contextlib.contextmanager
def files_of_at_most(size: int):
    """No file may be longer than so many bytes: writing ends as on a full disk, with another number.

    A `with` in the test, no fixture: pytest writes its own results before fixtures end, perhaps to a file.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

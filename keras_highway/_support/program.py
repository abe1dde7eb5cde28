"""Which program imports the package: the command line, one of its modules, or another program."""

import sys
from pathlib import Path

COMMAND, MODULE, OTHER = "command", "module", ""
_SCRIPT = "keras-highway"


def program_of(package: str) -> str:
    """Returns what runs while `package` is imported.

    Args:
        package: Name of the package.

    Returns:
        `COMMAND` for `python -m PACKAGE` and the script that pip installs,
        `MODULE` for `python -m PACKAGE.X`, `OTHER` for all else.
    """
    if Path(sys.argv[0] if sys.argv else "").name.removesuffix(".exe") == _SCRIPT:
        return COMMAND
    if sys.argv[:1] != ["-m"]:  # what Python puts there until it has located the module
        return OTHER
    words = sys.orig_argv[1:]
    if package in words:
        return COMMAND
    return MODULE if any(word.startswith(f"{package}.") for word in words) else OTHER

"""`hf://org/name[@revision]`: which repository of the Hub, and which of its revisions."""

import re
from typing import NamedTuple

PREFIX = "hf://"
MAIN = "main"
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?"  # the Hub's own rule, and no path
_REPOSITORY = re.compile(rf"{_PART}/{_PART}")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")


class HubName(NamedTuple):
    """A repository of the Hub.

    Attributes:
        repository: `org/name`.
        revision: Branch, tag or commit. Defaults to `"main"`.
    """

    repository: str
    revision: str = MAIN

    def __str__(self) -> str:
        return f"{PREFIX}{self.repository}" + ("" if self.revision == MAIN else f"@{self.revision}")


def is_hub_name(weights: object) -> bool:
    """Whether a `weights` argument names a repository of the Hub.

    Raises:
        ValueError: If it begins with `hf://` in capital letters.
    """
    text = str(weights)
    if text.lower().startswith(PREFIX) and not text.startswith(PREFIX):
        raise ValueError(f"Names on the Hub begin with {PREFIX}, in lower case. Received: {text!r}")
    return text.startswith(PREFIX)


def parse(text: str) -> HubName:
    """Read `hf://org/name`, `hf://org/name@revision`, with or without `hf://`.

    Args:
        text: The name.

    Raises:
        ValueError: If it is not such a name.
    """
    repository, at, revision = str(text).removeprefix(PREFIX).partition("@")
    good = _REPOSITORY.fullmatch(repository) and not _climbs(repository)
    if not good or (at and (not _REVISION.fullmatch(revision) or _climbs(revision))):
        raise ValueError(
            f"A name on the Hub is {PREFIX}org/name or {PREFIX}org/name@revision, of letters, digits, '-', '_', '.'. "
            f"Received: {text!r}"
        )
    return HubName(repository, revision or MAIN)


def parse_target(text: str) -> HubName:
    """Read the name of a repository to write to, whose commits go to `main`.

    Args:
        text: `org/name`, with or without `hf://`.

    Raises:
        ValueError: If it is not such a name, or names another revision.
    """
    name = parse(text)
    if name.revision != MAIN:
        raise ValueError(
            f"What is published goes to the repository's {MAIN!r} and is tagged there: leave out the revision. "
            f"Received: {text!r}"
        )
    return name


def _climbs(text) -> bool:
    return ".." in text or "--" in text  # the Hub allows neither

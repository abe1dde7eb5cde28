"""One file from the Hub or from its cache, checked before it is read.

huggingface_hub downloads to a file of its own and renames it when its length
is right, so that a cut download leaves nothing behind. It does not look at
the content: a file of the right length and the wrong bytes would be trusted
for good. Here it is compared with its sha256, and removed where it differs. A
file of the right bytes that this version cannot read is kept: the next call
would download the same, and offline something else would be loaded, as where
a `weights.json` is missing. So is one that the system could not read.
"""

import contextlib
import errno
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from keras_highway._support.files import passing_cause, sha256_of
from keras_highway.hub.client import cache_folder, check_reachable, client, git_sha1, hub_errors, is_absent
from keras_highway.hub.error import HubError
from keras_highway.hub.names import HubName

_SHA256 = re.compile(r"[0-9a-f]{64}")
_GIT_SHA1 = re.compile(r"[0-9a-f]{40}")
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
_AS_PUBLISHED = (
    "The file is as it was published, and this version of keras_highway cannot read it: try a later version, or have "
    "its publisher mend it. It was kept"
)
_KEPT = "It was kept, for nothing is known about its content: call again when the file can be read"
_UNKNOWN = "It was kept, for nothing here states its hash: where it is damaged, remove {path}, and call again"


def fetch(
    name: HubName,
    filename: str,
    sha256: str = "",
    check: Callable[[Path], object] | None = None,
    cache: Path | None = None,
    read: Callable[[Path, str], object] | None = None,
    needed: bool = True,
) -> Path:
    """Return a file of a repository: from the cache, else downloaded, with its progress on stderr.

    Honours `HF_HUB_OFFLINE`, `HF_ENDPOINT`, `HF_HOME` and `HF_TOKEN`, which
    huggingface_hub reads. Processes that ask at once wait for each other.

    Args:
        name: Repository and revision; a commit is served from the cache
            without asking the Hub.
        filename: Path of the file in the repository.
        sha256: What the content must have. Defaults to what the Hub itself
            states for the file.
        check: Called with the path; raises `ValueError` if it is not what it
            should be.
        cache: Folder of the cache. Defaults to huggingface_hub's.
        read: Called with the path and the sha256 that the content must have,
            `""` where none is known; raises `ValueError` if it has another or
            is not what it should be. The file is not read but for it.
        needed: Whether nothing is loaded without the file. Defaults to
            `True`.

    Raises:
        HubError: If it cannot be downloaded.
        ValueError: If the content is not what it should be. It has been
            removed from the cache then if its hash is wrong, or nothing
            states its hash and it is `needed`. Also if it cannot be read, as
            for a missing permission; it is kept then.
        OSError: If a file system is away, see `passing_cause`; it is kept, too.
    """
    cache = cache_folder() if cache is None else cache
    with locked(cache, name.repository):
        with hub_errors(f"download {filename} of {name}"):
            if not isinstance(client().try_to_load_from_cache(name.repository, filename, cache, name.revision), str):
                check_reachable(f"download {filename} of {name}")
            path = Path(client().hf_hub_download(name.repository, filename, revision=name.revision, cache_dir=cache))
        expected = sha256 or promised(path)
        try:
            if read is not None and not _GIT_SHA1.fullmatch(expected):
                read(path, expected)
            else:
                _check_content(path, expected, name)
                if read is not None:
                    read(path, "")
            if check is not None:
                check(path)
        except (ValueError, OSError) as error:
            away = passing_cause(error)
            done = _KEPT if away or _is_of_the_system(error) else _dealt_with(path, expected, cache, name, needed)
            text = f"{filename} of {name}: {str(error).rstrip('.')}. {done}."
            raise OSError(away.errno, text) if away else ValueError(text) from error
    return path


def _is_of_the_system(error: Exception) -> bool:
    """Whether a file could not be read, such as for a missing permission: that says nothing about its content."""
    cause = error.__cause__ or error
    if isinstance(cause, OSError):  # HDF5's about a damaged file have neither a number nor a class of their own
        return cause.errno is not None or type(cause) is not OSError
    return isinstance(cause, MemoryError)


def _dealt_with(path, expected, cache, name, needed) -> str:
    """Remove a file that is refused unless it is as it was published; returns what was done, for the error."""
    if not expected and not needed:
        return _UNKNOWN.format(path=path)
    try:
        as_published = bool(expected) and _has(path, expected)
    except OSError:
        return _KEPT
    return _AS_PUBLISHED if as_published else _removed(path, cache, name)


def fetch_if_there(
    name: HubName, filename: str, check: Callable[[Path], object] | None = None, needed: bool = False
) -> Path | None:
    """As `fetch`, or None where the repository has no such file, or `HF_HUB_OFFLINE` is set and the cache has none.

    Args:
        name: See `fetch`.
        filename: See `fetch`.
        check: See `fetch`.
        needed: See `fetch`. Defaults to `False`.

    Raises:
        HubError: If the Hub answers with another error.
        ValueError: See `fetch`.
        OSError: See `fetch`.
    """
    try:
        return fetch(name, filename, check=check, needed=needed)
    except HubError as error:
        if is_absent(error.__cause__) or _known_to_be_absent(name, filename):
            return None
        raise


def _known_to_be_absent(name: HubName, filename: str) -> bool:
    """Whether the cache has recorded that the Hub has no such file at this commit."""
    path = client().try_to_load_from_cache(name.repository, filename, cache_folder(), name.revision)
    return path is not None and not isinstance(path, str)


@contextlib.contextmanager
def locked(cache: Path, repository: str) -> Iterator[None]:
    """Hold the lock of a repository's files in the cache; other processes wait.

    Where we cannot write to the cache, as to one that many machines share,
    there is no lock: it is only read.
    """
    folder = cache / ".locks" / "keras_highway"
    with contextlib.ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(client().utils.WeakFileLock(folder / f"{repository.replace('/', '--')}.lock"))
        except OSError as error:
            if error.errno not in READ_ONLY:
                raise
        yield


def promised(path: Path) -> str:
    """Return what the content of a file of the cache should hash to, a sha256 or git's sha1; `""` if nothing says so.

    The cache names contents by their ETag, which is such a hash on the Hub.
    That of a mirror may be another, a cache that was copied as links to files
    has links to other names, and some file systems have no links.

    Args:
        path: The file, in the folder of its commit.
    """
    target = Path(os.readlink(path)).name if path.is_symlink() else ""
    return target if _SHA256.fullmatch(target) or _GIT_SHA1.fullmatch(target) else ""


def _check_content(path, expected, name) -> None:
    """Compare a file with the hash that it should have, if there is one."""
    if expected and not _has(path, expected):
        actual = git_sha1(path) if _GIT_SHA1.fullmatch(expected) else sha256_of(path)
        raise ValueError(f"is damaged or altered: its hash is {actual}, that of {name} is {expected}.")


def _has(path: Path, expected: str) -> bool:
    """Whether a file has a hash: of 40 digits git's, or that of the content alone, as some mirrors state it."""
    if not _GIT_SHA1.fullmatch(expected):
        return sha256_of(path) == expected
    with path.open("rb") as file:
        alone = hashlib.file_digest(file, lambda: hashlib.sha1(usedforsecurity=False)).hexdigest()
    return expected in (alone, git_sha1(path))


def _removed(path: Path, cache: Path, name: HubName) -> str:
    """Remove a file of the cache, and returns what was done, for the error."""
    try:
        left = _remove(path, cache / f"models--{name.repository.replace('/', '--')}" / "blobs")
    except OSError as kept:
        return f"It could not be removed ({kept.strerror}): have {path} removed"
    if left is not None:
        return (
            f"Its link {path} was removed, and what it led to was kept, for it is outside of this cache: {left}. "
            "The next call downloads it into this cache; have the other mended"
        )
    return "It was removed: the next call fetches it anew"


def _remove(path: Path, contents: Path) -> Path | None:
    """Remove a file of the cache: the link of the snapshot, and the content it leads to, if that is the cache's own.

    Another cache may share what lies elsewhere, which is returned, and kept.
    """
    while path.is_symlink():
        target = path.parent / os.readlink(path)
        path.unlink(missing_ok=True)
        if not target.parent.resolve().is_relative_to(contents.resolve()):
            return target
        path = target
    path.unlink(missing_ok=True)
    return None

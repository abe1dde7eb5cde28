"""One file from the Hub or from its cache, checked before it is read.

huggingface_hub downloads to a file of its own and renames it when its length
is right, so that a cut download leaves nothing behind. It does not look at
the content: a file of the right length and the wrong bytes would be trusted
for good. Here it is compared with its sha256, and removed where it differs.
"""

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from keras_highway._support.files import sha256_of
from keras_highway.hub.client import cache_folder, check_reachable, client, git_sha1, hub_errors, is_absent
from keras_highway.hub.error import HubError
from keras_highway.hub.names import HubName

_SHA256 = re.compile(r"[0-9a-f]{64}")
_GIT_SHA1 = re.compile(r"[0-9a-f]{40}")
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


def fetch(
    name: HubName,
    filename: str,
    sha256: str = "",
    check: Callable[[Path], object] | None = None,
    cache: Path | None = None,
    read: Callable[[Path, str], object] | None = None,
) -> Path:
    """Returns a file of a repository: from the cache, else downloaded, with its progress on stderr.

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

    Raises:
        HubError: If it cannot be downloaded.
        ValueError: If the content is not what it should be. It has been
            removed from the cache then.
    """
    cache = cache_folder() if cache is None else cache
    with locked(cache, name.repository):
        with hub_errors(f"download {filename} of {name}"):
            if not isinstance(client().try_to_load_from_cache(name.repository, filename, cache, name.revision), str):
                check_reachable(f"download {filename} of {name}")
            path = Path(client().hf_hub_download(name.repository, filename, revision=name.revision, cache_dir=cache))
        try:
            expected = sha256 or _promised(path)
            if read is not None and not _GIT_SHA1.fullmatch(expected):
                read(path, expected)
            else:
                _check_content(path, sha256, name)
                if read is not None:
                    read(path, "")
            if check is not None:
                check(path)
        except ValueError as error:
            reason, done = str(error).rstrip("."), "It was removed: the next call fetches it anew"
            try:
                _remove(path)
            except OSError as kept:
                done = f"It could not be removed ({kept.strerror}): have {path} removed"
            raise ValueError(f"{filename} of {name}: {reason}. {done}.") from error
    return path


def fetch_if_there(name: HubName, filename: str, check: Callable[[Path], object] | None = None) -> Path | None:
    """As `fetch`, or None where the repository has no such file, or `HF_HUB_OFFLINE` is set and the cache has none.

    Args:
        name: See `fetch`.
        filename: See `fetch`.
        check: See `fetch`.

    Raises:
        HubError: If the Hub answers with another error.
        ValueError: If the content is not what it should be.
    """
    try:
        return fetch(name, filename, check=check)
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
    """Holds the lock of a repository's files in the cache; other processes wait.

    Where we cannot write to the cache, as to one that many machines share,
    there is no lock: it is only read.
    """
    folder = cache / ".locks" / "keras_highway"
    with contextlib.ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(client().utils.WeakFileLock(folder / f"{repository.replace('/', '--')}.lock"))
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise
        yield


def _promised(path: Path) -> str:
    """What the content of a file of the cache should hash to: the cache names contents by their ETag."""
    return Path(os.readlink(path)).name if path.is_symlink() else ""


def _check_content(path, sha256, name) -> None:
    promised = _promised(path)
    if sha256 or _SHA256.fullmatch(promised):
        expected, actual = sha256 or promised, sha256_of(path)
    elif _GIT_SHA1.fullmatch(promised):
        expected, actual = promised, git_sha1(path)
    else:
        return  # a file system without links: nothing states what the content should be
    if actual != expected:
        raise ValueError(f"is damaged or altered: its hash is {actual}, that of {name} is {expected}.")


def _remove(path: Path) -> None:
    """Removes a file of the cache: the link of the snapshot and the content it leads to."""
    while path.is_symlink():
        target = path.parent / os.readlink(path)
        path.unlink(missing_ok=True)
        path = target
    path.unlink(missing_ok=True)

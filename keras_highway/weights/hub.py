"""The Hugging Face Hub: names, downloads that are compared with their hash, uploads. huggingface_hub comes in lazily.

Everything from the Hub is data: files of fixed names, read with h5py, JSON and safetensors. No pickle is opened and no
code is run.
"""

import contextlib
import hashlib
import re
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple

from keras_highway._support.files import sha256_of
from keras_highway._support.terminal import brief

PREFIX = "hf://"
MAIN = "main"
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?"  # the Hub's own rule, and no path
_NAME = re.compile(rf"(?!.*(?:\.\.|--))({_PART}/{_PART})(?:@([A-Za-z0-9][A-Za-z0-9._/-]*))?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TAG = re.compile(r"v(\d+)")
_PATIENCE = 4.0  # seconds for an answer
_LATER = "check the connection and try again later, set a mirror with HF_ENDPOINT, or pass a file"
_PUBLISH = "publish again later: the repository changes in one commit or not at all"


class HubError(OSError):
    """A request to the Hub failed; the message states what to do."""


class HubName(NamedTuple):
    """A repository of the Hub."""

    repository: str  # `org/name`
    revision: str = MAIN  # branch, tag or commit

    def __str__(self) -> str:
        return f"{PREFIX}{self.repository}" + ("" if self.revision == MAIN else f"@{self.revision}")


def is_hub_name(weights: object) -> bool:
    """Whether a `weights` argument names a repository of the Hub."""
    text = str(weights)
    if text.lower().startswith(PREFIX) and not text.startswith(PREFIX):
        raise ValueError(f"Names on the Hub begin with {PREFIX}, in lower case. Received: {text!r}")
    return text.startswith(PREFIX)


def parse(text: str) -> HubName:
    """Read `hf://org/name[@revision]`, with or without `hf://`; raise a `ValueError` for any other text."""
    match = _NAME.fullmatch(str(text).removeprefix(PREFIX))
    if match is None:
        raise ValueError(
            f"A name on the Hub is {PREFIX}org/name or {PREFIX}org/name@revision, of letters, digits, '-', '_', '.'. "
            f"Received: {text!r}"
        )
    return HubName(match[1], match[2] or MAIN)


def parse_target(text: str) -> HubName:
    """Read the name of a repository to publish to, which has no revision."""
    name = parse(text)
    if name.revision != MAIN:
        raise ValueError(f"Publishing always commits to {MAIN!r}: remove the revision. Received: {text!r}")
    return name


def client() -> Any:
    """Return the huggingface_hub package."""
    import huggingface_hub
    import huggingface_hub.constants
    import huggingface_hub.errors
    import huggingface_hub.utils

    return huggingface_hub


def cache_folder() -> Path:
    """Return the folder of downloads: `HF_HUB_CACHE`, else below `HF_HOME`."""
    return Path(client().constants.HF_HUB_CACHE)


def home_folder() -> Path:
    """Return the folder of huggingface_hub's files, `HF_HOME`."""
    return Path(client().constants.HF_HOME)


def fetch(name: HubName, filename: str, cache: Path | None = None) -> Path:
    """Return a file of a repository: from the cache, else downloaded, as huggingface_hub's variables state."""
    folder = cache_folder() if cache is None else cache
    with _hub_errors(f"download {filename} of {name}", _LATER):
        if not isinstance(client().try_to_load_from_cache(name.repository, filename, folder, name.revision), str):
            _check_reachable()
        return Path(client().hf_hub_download(name.repository, filename, revision=name.revision, cache_dir=folder))


def _check_reachable() -> None:
    """Send the Hub one request: huggingface_hub itself would try for half a minute, file by file."""
    hub = client()
    if hub.constants.is_offline_mode():
        return
    try:
        hub.utils.get_session().head(hub.constants.ENDPOINT, timeout=_PATIENCE)
    except Exception as error:  # the HTTP library's
        if _status_of(error) is None:
            raise hub.errors.LocalEntryNotFoundError(f"the Hub cannot be reached: {error}") from error


def fetch_if_there(name: HubName, filename: str) -> Path | None:
    """Return a file as `fetch` does, or None where the repository, or the cache offline, has no such file."""
    try:
        return fetch(name, filename)
    except HubError as error:
        with _hub_errors(f"read the cache of {name}", _LATER):
            known = client().try_to_load_from_cache(name.repository, filename, cache_folder(), name.revision)
        if is_absent(error) or not isinstance(known, str | None):  # the cache has noted that there is no such file
            return None
        raise


def is_absent(error: HubError) -> bool:
    """Whether the repository has no such file. Offline the cache decides; a server without an answer proves nothing."""
    hub, cause = client(), error.__cause__
    if isinstance(cause, hub.errors.LocalEntryNotFoundError):
        return hub.constants.is_offline_mode()
    return isinstance(cause, hub.errors.EntryNotFoundError)


def stated_sha256(path: Path) -> str:
    """Return the SHA-256 that the cache has in the name of a large file's content, `""` where it has none."""
    name = path.resolve().name
    return name if path.is_symlink() and _SHA256.fullmatch(name) else ""


def discard(path: Path) -> str:
    """Remove a damaged file from the cache; return a sentence that states what was done."""
    content = path.resolve()
    if not content.is_relative_to(cache_folder().resolve()):
        return f"It is not in this cache: remove {content}."
    for part in {path, content}:
        part.unlink(missing_ok=True)
    return "It was removed from the cache: the next call downloads it again."


def git_sha1(path: Path) -> str:
    """Return the name that git gives a file's content, by which the Hub knows small files."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


class Pushed(NamedTuple):
    """Changes of a push; with `dry_run`, those that it would make."""

    repository: str  # `org/name`
    changed: tuple[str, ...]  # files that were uploaded
    unchanged: tuple[str, ...]  # files that were right already
    commit: str  # the repository's head afterwards, `""` before the first one
    tag: str  # the release that is that head, `""` before the first one
    compared: bool = True  # false of a dry run that could not reach the Hub
    removed: tuple[str, ...] = ()  # files of an earlier publication that were removed


def push(
    folder: Path,
    repository: str,
    private: bool = False,
    dry_run: bool = False,
    right: Callable[[dict[str, str]], set[str]] = lambda remote: set(),
    outdated: Callable[[dict[str, str]], set[str]] = lambda remote: set(),
) -> Pushed:
    """Bring a repository up to date with a folder in one commit, and tag it `v1`, `v2`, ... where it changed."""
    name, hub = parse_target(repository), client()
    api, paths = hub.HfApi(), {p.relative_to(folder).as_posix(): p for p in sorted(folder.rglob("*")) if p.is_file()}
    with _hub_errors(f"publish to {name}", _PUBLISH):
        try:
            _check_reachable()
            if not dry_run:
                api.create_repo(name.repository, private=private, exist_ok=True)
            head, remote, is_private = _state(api, name)
        except Exception as error:
            if not dry_run or _status_of(error) is not None:  # it answered: a wrong token, a server that is down
                raise
            return Pushed(name.repository, tuple(paths), (), "", "", compared=False)
        if private and head and not is_private:
            raise HubError(
                f"{name} is public: make it private in its settings, or publish to a new repository. "
                "Received: private=True"
            )
        kept = right(remote)
        changed = tuple(
            path
            for path, file in paths.items()
            if path not in kept and remote.get(path) not in (sha256_of(file), git_sha1(file))
        )
        removed = tuple(sorted(outdated(remote) & remote.keys() - paths.keys()))
        if (changed or removed) and not dry_run:
            parts = {"Update": changed, "Remove": removed}
            head = api.upload_folder(
                repo_id=name.repository,
                folder_path=folder,
                commit_message="; ".join(f"{what} {', '.join(files)}" for what, files in parts.items() if files),
                parent_commit=head,  # without it, a commit that another process made meanwhile would be undone
                allow_patterns=list(changed),
                delete_patterns=list(removed),
            ).oid
        tag = _tagged(api, name, head, dry_run) if head else ""
    unchanged = tuple(path for path in paths if path not in changed)
    return Pushed(name.repository, changed, unchanged, head, tag, removed=removed)


def _state(api: Any, name: HubName) -> tuple[str, dict[str, str], bool]:
    """Return a repository's head, its files with their hashes and whether it is private; `""` of no repository."""
    try:
        info = api.repo_info(name.repository)
    except client().errors.RepositoryNotFoundError:
        return "", {}, False
    tree = api.list_repo_tree(name.repository, recursive=True, revision=info.sha)
    files = {entry.path: entry.lfs.sha256 if entry.lfs else entry.blob_id for entry in tree if hasattr(entry, "lfs")}
    return info.sha, files, info.private


def _tagged(api: Any, name: HubName, head: str, dry_run: bool) -> str:
    """Return the release tag of a commit, made if it has none and this is no dry run."""
    tags = api.list_repo_refs(name.repository).tags
    known = {int(match[1]): ref.target_commit for ref in tags if (match := _TAG.fullmatch(ref.name))}
    tag = next((f"v{number}" for number, commit in known.items() if commit == head), "")
    if tag or dry_run:
        return tag
    tag = f"v{max(known, default=0) + 1}"
    api.create_tag(name.repository, tag=tag, revision=head)
    return tag


@contextlib.contextmanager
def _hub_errors(what: str, advice: str) -> Generator[None]:
    """Turn any error of huggingface_hub into a `HubError` that states what failed and what to do."""
    try:
        yield
    except HubError:
        raise
    except Exception as error:  # the HTTP library below huggingface_hub changes with its versions, as do its errors
        reason = f"{type(error).__name__}: {brief(error)}"
        raise HubError(
            f"Could not {what} ({client().constants.ENDPOINT}): {_remedy(error, advice)}. {reason}"
        ) from error


def _remedy(error: Exception, advice: str) -> str:
    hub, offline = client(), client().constants.is_offline_mode()
    absent = isinstance(error, hub.errors.EntryNotFoundError)
    if isinstance(error, hub.errors.GatedRepoError):
        return "accept its terms on its page, with the account of HF_TOKEN"
    if isinstance(error, hub.errors.RevisionNotFoundError):
        return "there is no such revision"
    if isinstance(error, hub.errors.RepositoryNotFoundError) or _status_of(error) in (401, 403):
        return "there is no such repository, or HF_TOKEN does not open it"
    if offline:
        return "HF_HUB_OFFLINE is set: unset it, or pass a file"
    if absent and not isinstance(error, hub.errors.LocalEntryNotFoundError):
        return "the repository has no such file"
    return advice


def _status_of(error: BaseException | None) -> int | None:
    """Return the HTTP status behind an error: huggingface_hub reports some as a file that is not in the cache."""
    while error is not None:
        response = getattr(error, "response", None)
        if response is not None:
            return response.status_code
        error = error.__cause__
    return None

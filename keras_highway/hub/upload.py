"""A folder of files into a repository: only what differs, in one commit, with a release tag.

A commit is whole or it is not there, and content that was uploaded before an
interruption is not uploaded again: whatever stops a push, the same push once
more ends in the same repository.

`HfApi.upload_folder` also skips what is unchanged, and is not used: what would
change must be known before anything is uploaded (for a dry run, for the
message of the commit, and to keep files that are right although their bytes
differ), and then the commit itself is one call.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from keras_highway._support.files import sha256_of
from keras_highway.hub.client import check_reachable, client, git_sha1, hub_errors, status_of
from keras_highway.hub.error import HubError
from keras_highway.hub.names import HubName, parse_target

_ADVICE = "Publish again later: what was uploaded stays, and the repository changes in one commit or not at all."
_TAG = re.compile(r"v(\d+)")


class Pushed(NamedTuple):
    """What a push did, or with `dry_run` would do.

    Attributes:
        repository: `org/name`.
        changed: Files that were uploaded.
        unchanged: Files that were right already.
        commit: The repository's head afterwards, `""` if there is none yet.
        tag: The release that is that head, `""` if there is none yet.
        compared: Whether the files were compared with the Hub's: a dry run
            does without where it cannot be reached.
        removed: Files of an earlier publication that were removed.
    """

    repository: str
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    commit: str
    tag: str
    compared: bool = True
    removed: tuple[str, ...] = ()


def push(
    folder: Path,
    repository: str,
    private: bool = False,
    dry_run: bool = False,
    keep: Callable[[dict[str, str]], set[str]] = lambda remote: set(),
    outdated: Callable[[dict[str, str]], set[str]] = lambda remote: set(),
) -> Pushed:
    """Brings a repository up to date with a folder, and tags it `v1`, `v2`, ... where it changed.

    Files of the repository that are not in the folder stay, except those
    that `outdated` names: they are removed in the same commit.

    Args:
        folder: The files.
        repository: `org/name`; made if it is not there.
        private: Bool, whether to make it private.
        dry_run: Bool, whether only to look; needs no network.
        keep: Function from the repository's files (path to hash) to those
            that are right although they differ.
        outdated: Function from the repository's files to those that must not
            stay where the folder has none in their place.

    Raises:
        HubError: If the Hub refuses or cannot be reached, or the repository
            is public although `private` is asked for.
        ValueError: If `repository` is not a name on the Hub.
    """
    name = parse_target(repository)
    with hub_errors(f"publish to {name}", _ADVICE):
        api = client().HfApi()
        if not dry_run:
            check_reachable(f"publish to {name}", _ADVICE)
            api.create_repo(name.repository, private=private, exist_ok=True)
            if private:
                _refuse_public(api, name)
        pushed = _push(api, name, folder, dry_run, keep, outdated)
        if dry_run and private and pushed.commit:
            _refuse_public(api, name)
        return pushed


def _refuse_public(api, name: HubName) -> None:
    if not api.repo_info(name.repository).private:
        raise HubError(
            f"{name} is there and public: make it private in its settings on the Hub, or publish to a new "
            "repository. Received: private=True"
        )


def _push(api, name: HubName, folder, dry_run, keep, outdated) -> Pushed:
    try:
        check_reachable()
        head, remote = _state(api, name)
    except Exception as error:
        if not dry_run or status_of(error) is not None:  # it answered: a wrong token, a server that is down
            raise
        everything = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        return Pushed(name.repository, tuple(everything), (), "", "", compared=False)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    paths = {path.relative_to(folder).as_posix(): path for path in files}
    kept = keep(remote)
    changed = tuple(p for p, file in paths.items() if p not in kept and remote.get(p) not in _hashes(file))
    unchanged = tuple(p for p in paths if p not in changed)
    removed = tuple(sorted(outdated(remote) & remote.keys() - paths.keys()))
    if dry_run:
        tag = _tag_of(api, name, head) if head else ""
    else:
        head = _commit(api, name, head, {p: paths[p] for p in changed}, removed)
        tag = _tag_of(api, name, head) or _add_tag(api, name, head)
    return Pushed(name.repository, changed, unchanged, head, tag, removed=removed)


def _commit(api, name, head, changed, removed) -> str:
    """Make the commit, if there is something to change; returns the head afterwards."""
    if not changed and not removed:
        return head
    hub, parts = client(), {"Update": changed, "Remove": removed}
    operations = [hub.CommitOperationAdd(path_in_repo=p, path_or_fileobj=str(file)) for p, file in changed.items()]
    operations += [hub.CommitOperationDelete(path_in_repo=p) for p in removed]
    message = "; ".join(f"{what} {', '.join(paths)}" for what, paths in parts.items() if paths)
    # Without its parent, a commit would silently undo one that another process made meanwhile.
    return api.create_commit(name.repository, operations, commit_message=message, parent_commit=head).oid


def _state(api, name) -> tuple[str, dict[str, str]]:
    """Return the head of a repository, and its files with their hashes; nothing of one that is not there."""
    try:
        head = api.repo_info(name.repository).sha
    except client().errors.RepositoryNotFoundError:
        return "", {}
    tree = api.list_repo_tree(name.repository, recursive=True, revision=head)
    return head, {entry.path: _hash_of(entry) for entry in tree if hasattr(entry, "blob_id")}


def _hash_of(entry: Any) -> str:
    return entry.lfs.sha256 if entry.lfs is not None else entry.blob_id


def _hashes(file) -> tuple[str, str]:
    """Small files are known by git's hash, large ones by their sha256."""
    return sha256_of(file), git_sha1(file)


def _tags(api, name) -> dict[int, str]:
    refs = api.list_repo_refs(name.repository).tags
    return {int(match[1]): ref.target_commit for ref in refs if (match := _TAG.fullmatch(ref.name))}


def _tag_of(api, name, head) -> str:
    return next((f"v{n}" for n, commit in _tags(api, name).items() if commit == head), "")


def _add_tag(api, name, head) -> str:
    tag = f"v{max(_tags(api, name), default=0) + 1}"
    api.create_tag(name.repository, tag=tag, revision=head)
    return tag

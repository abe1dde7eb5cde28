"""Bringing repositories on the Hub up to date with the zoo, and noting them in the table of what is on the Hub."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from keras_highway._support.files import sha256_of
from keras_highway.hub import HubError, HubName, Pushed, fetch, parse_target, push
from keras_highway.hub.client import git_sha1
from keras_highway.publishing.bundle import of_a_run, write_bundle
from keras_highway.publishing.check import CHECK, compare_check
from keras_highway.publishing.curve import CURVE
from keras_highway.publishing.publishable import Publishable, find_publishable, zoo_names
from keras_highway.publishing.task_weights import TaskWeights
from keras_highway.weights import file as weights_file
from keras_highway.weights import registry
from keras_highway.weights.info import FILE


def publish(
    weights: str,
    repository: str,
    private: bool = False,
    dry_run: bool = False,
    *,
    dataset: str | None = None,
    license: str | None = None,
) -> Pushed:
    """Make a repository of trained weights, or brings it up to date; what is right already stays.

    If it is interrupted at any point, repeating the call gives the same
    repository: its files come in one commit, and then its tag. That commit
    also removes what an earlier publication of a run left and the new one
    lacks (its result, recipe, logs and their curve, a vocabulary): it tells
    of other weights. Other files of the repository stay.

    Args:
        weights: The folder of a finished run or of `kh.save`, or a weights
            name.
        repository: `org/name`.
        private: Bool, whether a new repository is private. One that is there
            and public is refused then.
        dry_run: Bool, whether only to report what would change; where the Hub
            cannot be reached, of an empty repository.
        dataset: What they were trained on, for the card. Defaults to what is
            known.
        license: Of the weights, for the card. Defaults to what is known.

    Returns:
        What was uploaded and removed, the commit and its tag.

    Raises:
        HubError: If the Hub refuses or cannot be reached, or the repository
            is public although `private` is asked for.
        ValueError: If there is nothing to publish, or it is not right.
    """
    name = parse_target(repository)
    return _publish(find_publishable(weights, dataset, license), name, private, dry_run)


def _publish(publishable: Publishable, name: HubName, private: bool, dry_run: bool) -> Pushed:
    with tempfile.TemporaryDirectory(prefix="keras_highway-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch, "bundle")
        folder.mkdir()
        loaded = write_bundle(publishable, name.repository, folder)
        pushed = push(
            folder, name.repository, private, dry_run, lambda remote: _right(remote, name, folder, loaded), of_a_run
        )
    if not dry_run and not private:
        _note_repository(publishable, pushed)
    return pushed


def publish_all(
    organization: str,
    private: bool = False,
    dry_run: bool = False,
    on_pushed: Callable[[Pushed], object] = lambda pushed: None,
) -> list[Pushed]:
    """Publish every weight of the table that has a folder here, each as `organization/<its name>`.

    Args:
        organization: Of the repositories.
        private: Bool, whether new repositories are private. One that is there
            and public is refused then.
        dry_run: Bool, whether only to report what would change.
        on_pushed: Called after each repository, so that those that are done
            are known where a later one fails.

    Raises:
        HubError: If the Hub refuses or cannot be reached.
        ValueError: If there is nothing to publish; before anything is
            published, if a folder lacks files or has others than its row
            says, or if a name is none on the Hub.
    """
    names = zoo_names()
    if not names:
        raise ValueError(
            f"No weights have a folder here: set {registry.ZOO_VARIABLE}, or name the folder of a run instead of --all."
        )
    found = [(find_publishable(name), parse_target(f"{organization}/{name}")) for name in names]
    for publishable, _ in found:
        weights_file.read(publishable.folder / FILE, registry.promised(publishable.row))
    done = []
    for publishable, target in found:
        done.append(_publish(publishable, target, private, dry_run))
        on_pushed(done[-1])
    return done


def _right(remote, name: HubName, folder, weights: TaskWeights) -> set[str]:
    """Files of the repository that are right although their bytes differ.

    Another processor computes logits that differ in their last bits, another
    matplotlib draws other pixels.
    """
    right = set()
    if CHECK in remote and remote.get(FILE) == sha256_of(folder / FILE):
        with tempfile.TemporaryDirectory(prefix="keras_highway-", ignore_cleanup_errors=True) as cache:
            try:
                compare_check(weights, fetch(name, CHECK, cache=Path(cache)))
                right.add(CHECK)
            except (ValueError, HubError):
                pass  # it is wrong, or does not come: the new one replaces it
    log = folder / "log.csv"  # a saved model has none
    if CURVE in remote and log.is_file() and remote.get(log.name) in (git_sha1(log), sha256_of(log)):
        right.add(CURVE)
    return right


def _note_repository(publishable: Publishable, pushed: Pushed) -> None:
    """Note repository and commit in the package's table, where it is a checkout's and has such a row."""
    known = registry.WEIGHTS.get(publishable.row.name)
    same = known is not None and known.sha256 == publishable.row.sha256  # not a run of one's own under its name
    if same and registry.in_checkout():
        registry.note_repository(publishable.row.name, {"repository": pushed.repository, "revision": pushed.commit})

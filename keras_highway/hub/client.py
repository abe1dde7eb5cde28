"""huggingface_hub, imported when it is first needed, and its many errors as one."""

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keras_highway.hub.error import HubError

_ADVICE = "Check the connection and try again, set a mirror with HF_ENDPOINT, or give a file."
_PATIENCE = 4.0  # seconds for an answer, whichever; HF_HUB_ETAG_TIMEOUT sets another number
_ANSWERED, _SILENT = 30.0, 5.0  # seconds for which an answer, or that there was none, is taken to hold
# By endpoint: time of the last request, and why it cannot be reached.
_last_answers: dict[str, tuple[float | None, str]] = {}


def client() -> Any:
    """Return the huggingface_hub package.

    Raises:
        HubError: If it is not installed.
    """
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
        import huggingface_hub.utils
    except ImportError as error:
        raise HubError(
            "The Hugging Face Hub needs the package huggingface_hub: pip install huggingface_hub. "
            "Without it, weights in the package and weight files still load."
        ) from error
    return huggingface_hub


def cache_folder() -> Path:
    """Where downloads are kept: `HF_HUB_CACHE`, else below `HF_HOME`."""
    return Path(client().constants.HF_HUB_CACHE)


def home_folder() -> Path:
    """Return the folder of huggingface_hub's files, `HF_HOME`."""
    return Path(client().constants.HF_HOME)


def endpoint() -> str:
    """Return the Hub's address: `HF_ENDPOINT`, else https://huggingface.co."""
    return str(client().constants.ENDPOINT)


@contextlib.contextmanager
def hub_errors(what: str, advice: str = "") -> Iterator[None]:
    """Turn what huggingface_hub raises inside into a `HubError` that states what failed and what to do.

    Args:
        what: What was being done, e.g. `"download model.weights.h5 of org/name"`.
        advice: What to do where the Hub cannot be reached. Defaults to what
            helps with downloads.
    """
    hub = client()
    try:
        yield
    except HubError:
        raise
    except Exception as error:  # the HTTP library below huggingface_hub changes with its versions, as do its errors
        raise HubError(f"Could not {what} ({endpoint()}): {_advice(hub, error, advice)}") from error


def check_reachable(what: str = "reach the Hugging Face Hub", advice: str = _ADVICE) -> None:
    """Send the Hub one request: huggingface_hub itself would try for half a minute, file by file.

    Args:
        what: See `hub_errors`.
        advice: What to do, for the error.

    Raises:
        HubError: If there is no answer within 4 seconds, or the seconds that
            `HF_HUB_ETAG_TIMEOUT` sets. Its cause is huggingface_hub's
            `LocalEntryNotFoundError`, as it is without a network.
    """
    hub, where = client(), endpoint()
    if hub.constants.is_offline_mode():
        return
    requested, trouble = _last_answers.get(where, (None, ""))
    if requested is None or time.monotonic() - requested > (_SILENT if trouble else _ANSWERED):
        trouble = _trouble(hub, where)
        _last_answers[where] = time.monotonic(), trouble
    if trouble:
        raise HubError(
            f"Could not {what}: the Hugging Face Hub ({where}) cannot be reached: {trouble}. {advice}"
        ) from hub.errors.LocalEntryNotFoundError(trouble)


def _trouble(hub, where) -> str:
    """Why the Hub cannot be reached, "" if it can; in a thread, since the look-up of a host name has no timeout."""
    limit = _PATIENCE
    if hub.constants.HF_HUB_ETAG_TIMEOUT != hub.constants.DEFAULT_ETAG_TIMEOUT:
        limit = float(hub.constants.HF_HUB_ETAG_TIMEOUT)
    outcomes: list[str] = []

    def ask():
        try:
            hub.utils.get_session().head(where, timeout=limit)
            outcomes.append("")
        except Exception as error:  # any answer at all is one; these are the HTTP library's
            outcomes.append("" if status_of(error) else " ".join(str(error).split())[:200] or type(error).__name__)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(limit)
    return outcomes[0] if outcomes else f"no answer within {limit:g} seconds (HF_HUB_ETAG_TIMEOUT sets another number)"


def _advice(hub, error, advice) -> str:
    errors = hub.errors
    message = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    status = status_of(error)
    if isinstance(error, errors.GatedRepoError):
        return f"its terms must be accepted first, on its page, by the account of HF_TOKEN. {message}"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"there is no such revision. {message}"
    if isinstance(error, errors.RepositoryNotFoundError) or status in (401, 403):
        return f"there is no such repository, or HF_TOKEN does not open it: check the name and the token. {message}"
    if advice:
        offline = "HF_HUB_OFFLINE is set: unset it. " if hub.constants.is_offline_mode() else ""
        return f"{offline}{advice} {message}"
    if hub.constants.is_offline_mode():
        return f"it is not in the cache {cache_folder()} and HF_HUB_OFFLINE is set: unset it, or give a file. {message}"
    if isinstance(error, errors.EntryNotFoundError) and not isinstance(error, errors.LocalEntryNotFoundError):
        return f"the repository has no such file. {message}"
    return f"try again later, set a mirror with HF_ENDPOINT, or give a file. Nothing broken was kept. {message}"


def is_absent(error: BaseException | None) -> bool:
    """Whether an error of huggingface_hub means that a repository has no such file.

    A server that does not answer does not prove that; without access to the
    server (`HF_HUB_OFFLINE`) the cache alone decides.
    """
    hub = client()
    if isinstance(error, hub.errors.LocalEntryNotFoundError):
        return hub.constants.is_offline_mode()
    return isinstance(error, hub.errors.EntryNotFoundError)


def status_of(error) -> int | None:
    """Return the HTTP status behind an error: huggingface_hub reports some as a file that is not in the cache."""
    while error is not None:
        response = getattr(error, "response", None)
        if response is not None:
            return response.status_code
        error = error.__cause__
    return None


def git_sha1(path: Path) -> str:
    """Return the name that git gives a file's content, which is what the Hub compares of small files."""
    digest = hashlib.sha1(b"blob %d\0" % os.path.getsize(path), usedforsecurity=False)
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()

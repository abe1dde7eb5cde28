"""`publish`: trained weights to the Hugging Face Hub."""

from keras_highway._support.terminal import visible
from keras_highway.cli.errors import OK, UsageError, usage_errors
from keras_highway.publishing import publish, publish_all


def run(arguments) -> int:
    """Prints one line per repository: what changed, and what it is now."""
    if arguments.all == bool(arguments.weights):
        raise UsageError(
            "publish takes either RUN or NAME, or --all. Received: " + ("both" if arguments.all else "none")
        )
    given = [f"--{name} {value}" for name in ("dataset", "license") if (value := getattr(arguments, name)) is not None]
    if arguments.all and given:
        raise UsageError(
            "--dataset and --license are for one card, and --all publishes many: leave them out. "
            f"Received: {' '.join(given)}"
        )
    organization, _, name = arguments.repo.partition("/")
    if bool(name) == arguments.all:
        expected = "an organization, --repo ORG" if arguments.all else "a repository, --repo ORG/NAME"
        raise UsageError(f"publish needs {expected}. Received: --repo {arguments.repo}")

    def tell(pushed) -> None:
        print(visible(_line(pushed, arguments.dry_run)), flush=True)

    with usage_errors():
        if arguments.all:
            publish_all(organization, arguments.private, arguments.dry_run, tell)
        else:
            card_fields = {"dataset": arguments.dataset, "license": arguments.license}
            tell(publish(arguments.weights, arguments.repo, arguments.private, arguments.dry_run, **card_fields))
    return OK


def _line(pushed, dry_run) -> str:
    upload, remove = ("would upload", "would remove") if dry_run else ("uploaded", "removed")
    parts = {upload: pushed.changed, remove: pushed.removed}
    what = ", ".join(f"{did} {', '.join(files)}" for did, files in parts.items() if files)
    what = what or ("nothing to do" if dry_run else "up to date")
    if not pushed.compared:
        return f"{pushed.repository}: {what}; the Hub cannot be reached, so that was not compared with what is there"
    state = f"; {pushed.tag or 'no release'}, commit {pushed.commit[:12]}" if pushed.commit else "; not there yet"
    return f"{pushed.repository}: {what}{state}"

"""How a commit is shown."""


def short(commit: str) -> str:
    """Returns the first 12 digits of a commit, and whether files differed from it: `"0123456789ab-dirty"`."""
    digits, dash, state = commit.partition("-")
    return digits[:12] + dash + state

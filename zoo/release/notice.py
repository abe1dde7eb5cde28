"""`python -m zoo.release.notice [--check]`: the weights of the wheel and their data's licences, in NOTICE."""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

from zoo.release.generated import bring_up_to_date

ROOT = Path(__file__).resolve().parents[2]
_START = "of it only what is named below is part of the wheel:\n\n"
_END = "\n\nkeras_highway/data/"


def render(text: str, zoo: Path = ROOT / "zoo" / "weights") -> str:
    """Return a NOTICE with its list of weights made anew.

    Raises:
        ValueError: If the list's place is not there.
    """
    by_licence = defaultdict(list)
    for path in sorted(zoo.glob("[!.]*/weights.json")):
        row = json.loads(path.read_text("utf-8"))
        if row["wheel"]:
            by_licence[row["data_licence"]].append(row["name"])
    before, start, rest = text.partition(_START)
    _, end, after = rest.partition(_END)
    if not start or not end:
        raise ValueError(f"NOTICE must hold the lines {_START.strip()!r} and {_END.strip()!r}.")
    listed = (f"{', '.join(names)}\n    {licence}" for licence, names in by_licence.items())
    return before + start + "\n".join(listed) + end + after


def main(argv=None) -> int:
    """Parse the command line; returns 1 where NOTICE and the zoo differ."""
    parser = argparse.ArgumentParser(prog="python -m zoo.release.notice", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    args = parser.parse_args(argv)
    path = ROOT / "NOTICE"
    message = "differs from the zoo; run python -m zoo.release.notice"
    return bring_up_to_date(path, render(path.read_text("utf-8")), args.check, message)


if __name__ == "__main__":
    sys.exit(main())

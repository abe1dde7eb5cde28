"""docs/reliability.md states what the logs report, and names tests that are there."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reliability.md").read_text("utf-8")


def test_counts_of_the_fuzzers_are_those_of_the_log():
    log = (ROOT / "tests" / "logs" / "fuzz.txt").read_text("utf-8")
    by_file, weights = {}, Counter()
    for name, ending, count in re.findall(r"^(\S+) +(refused|usable|identical) +(\d+)$", log, re.MULTILINE):
        if "." in name:
            by_file.setdefault(name, {})[ending] = int(count)
        else:
            weights[ending] += int(count)
    assert sum(weights.values()) == 2000 and len(by_file) == 6
    assert f"| 2000 | {weights['refused']} refused, {weights['identical']} bit-identical |" in PAGE
    for name, ends in by_file.items():
        assert sum(ends.values()) == 2000
        assert f"| altered `{name}` | 2000 | {ends['refused']} refused, {ends['usable']} usable |" in PAGE
    assert log.count(" 0 defects") == 2


def test_every_test_named_is_there():
    named = re.findall(r"`(tests/\w+\.py)::(\w+)`", PAGE)
    assert len(named) > 15
    for file, name in named:
        assert f"def {name}(" in (ROOT / file).read_text("utf-8"), f"{file}::{name}"


def test_numbers_of_the_simulated_day_are_those_of_the_log():
    log = (ROOT / "tests" / "logs" / "endurance.txt").read_text("utf-8")
    patterns = (
        r"(\d+) steps in (\d+) epochs",
        r"(\d+) SIGKILL and (\d+) full disks",
        r"(\d+) jumps of clocks",
        r"end: (\d+) numbers bit-identical",
        r"memory grew by (-?[\d.]+) MiB, open files by (\d+)",
    )
    text = " ".join(PAGE.replace(",", "").split())
    for pattern in patterns:
        match = re.search(pattern, log)
        assert match, pattern
        for number in match.groups():
            assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.]*\d)", text), f"{pattern}: {number}"

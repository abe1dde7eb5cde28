"""README and docs/ as a reader uses them: their snippets, their commands."""

import argparse
import importlib
import re
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
# Public names are imported from these: packages, and modules that list in `__all__` what of theirs is public.
PACKAGES = ("keras_highway", *(f"keras_highway.{name}" for name in ("analysis", "data", "layers")))
DOORS = (*PACKAGES, "keras_highway.data.ptb", "keras_highway.language")
_PROGRAMS = ("keras_highway", "tests", "training", "zoo")
_FENCE = re.compile(r"^(?:<!-- not run: (?P<reason>[^>]+) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)


class Snippet(NamedTuple):
    """A block of Python on a page; `reason` states why the tests do not run it, if they do not."""

    page: str
    number: int
    text: str
    reason: str


def snippets() -> list[Snippet]:
    """Every block of Python, except in upstream.md, which show faults of others."""
    return [
        Snippet(path.name, number, block["text"], block["reason"] or "")
        for path in PAGES
        if path.name != "upstream.md"
        for number, block in enumerate(b for b in _FENCE.finditer(path.read_text("utf-8")) if b["language"] == "python")
    ]


def commands(path: Path) -> list[list[str]]:
    """The words of each command of this project in a page's shell blocks, as `[..., "-m", MODULE, ...]`."""
    blocks = [b["text"] for b in _FENCE.finditer(path.read_text("utf-8")) if b["language"] == "sh"]
    text = re.sub(r"\bkeras-highway\b", "python -m keras_highway", "\n".join(blocks).replace("\\\n", " "))
    result = []
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        while "-m" in words and words[words.index("-m") + 1].split(".")[0] in (
            "keras_highway",
            "tests",
            "training",
            "zoo",
        ):
            end = next((i for i, word in enumerate(words) if word in ("&&", "|", "\\;")), len(words))
            if "-m" in words[:end]:
                result.append(words[:end])
            words = words[end + 1 :]
    return result


class Parsed(BaseException):
    """Ends a command after its arguments were understood."""


def parsed(argv, monkeypatch) -> tuple[str, argparse.Namespace]:
    """A command's module and arguments, as its own parser has them; nothing of it is done."""
    module = argv[argv.index("-m") + 1]
    parse = argparse.ArgumentParser.parse_args

    def stop(self, args=None, namespace=None):
        raise Parsed(parse(self, args, namespace))

    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", stop)
        patch.setattr(sys, "argv", argv[argv.index("-m") + 1 :])
        main = importlib.import_module("keras_highway.cli" if module == "keras_highway" else module).main
        with pytest.raises(Parsed) as caught:
            main()
    return module, caught.value.args[0]

"""docs/any_backend.md names tests that exist."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "any_backend.md"


def test_every_test_that_the_page_names_exists():
    named = re.findall(r"`((?:benchmarks/)?test_\w+\.py)::(test_\w+)`", PAGE.read_text("utf-8"))
    assert len(named) > 30
    functions = {
        file: {
            node.name for node in ast.parse((TESTS / file).read_text("utf-8")).body if isinstance(node, ast.FunctionDef)
        }
        for file in {file for file, _ in named}
    }
    assert [f"{file}::{test}" for file, test in named if test not in functions[file]] == []

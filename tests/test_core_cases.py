"""tests/core_cases.py names tests that are there, and tells core cases from others."""

import ast
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace

import pytest
from core_cases import CORE, is_more

TESTS = Path(__file__).parent


@pytest.mark.parametrize("row", CORE)
def test_rows_are_of_tests_that_are_there(row):
    file, _, name = row.partition("::")
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    assert any(isinstance(node, ast.FunctionDef) and fnmatch(node.name, name) for node in tree.body), row
    assert CORE[row] and not isinstance(CORE[row], str)


@pytest.mark.slow
def test_every_word_is_one_of_a_case():
    """If no case has a row's words any more, `make test` runs no case of it."""
    files = sorted({row.partition("::")[0] for row in CORE})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n0", "-o", "addopts=", *files]
    listed = subprocess.run(command, cwd=TESTS, capture_output=True, text=True)
    cases = [line.rpartition("/")[2] for line in listed.stdout.splitlines() if "::" in line and "[" in line]
    assert listed.returncode == 0 and len(cases) > 500, listed.stdout[-2000:] + listed.stderr[-2000:]
    for row, words in CORE.items():
        ids = [f"-{case.partition('[')[2][:-1]}-" for case in cases if fnmatch(case.partition("[")[0], row)]
        assert [word for word in words if not any(f"-{word}-" in case for case in ids)] == [], row


@pytest.mark.parametrize(
    ("node", "more"),
    [
        ("tests/test_blocks.py::test_contract[full-tied-BasicBlock]", True),
        ("tests/test_blocks.py::test_contract[coupled-same-BasicBlock]", False),
        ("tests/test_core_cases.py::test_cases[tests/test_blocks.py::test_contract[full-tied-BasicBlock]-True]", False),
        ("tests/test_oracles.py::test_logits_are_the_oracles[resnet152]", True),
        ("tests/test_oracles.py::test_logits_are_the_oracles[resnet50]", False),
    ],
)
def test_cases(node, more):
    assert is_more(SimpleNamespace(nodeid=node)) == more

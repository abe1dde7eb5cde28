"""tests/core_cases.py names tests that are there, and tells core cases from others."""

import ast
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


@pytest.mark.parametrize(
    ("node", "more"),
    [
        ("tests/test_blocks.py::test_contract[full-tied-BasicBlock]", True),
        ("tests/test_blocks.py::test_contract[coupled-tied-BasicBlock]", True),
        ("tests/test_blocks.py::test_contract[coupled-same-BasicBlock]", False),
        ("tests/test_core_cases.py::test_cases[tests/test_blocks.py::test_contract[full-tied-BasicBlock]-True]", False),
        ("tests/test_oracles.py::test_logits_are_the_oracles[resnet152]", True),
        ("tests/test_oracles.py::test_logits_are_the_oracles[resnet50]", False),
        ("tests/test_layers.py::test_dense_contract[c_only-same]", False),
        ("tests/test_layers.py::test_dense_options[full]", False),
        ("tests/test_blocks.py::test_transitions", False),
    ],
)
def test_cases(node, more):
    assert is_more(SimpleNamespace(nodeid=node)) == more

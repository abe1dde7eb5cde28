"""Helpers for attacks on files: a limit of their time, the form of their errors."""

import shutil
import time

import pytest

from keras_highway.weights import registry

NAME = "mnist10_w16.tvdn"


@pytest.fixture(autouse=True)
def quick():
    """No attack takes seconds."""
    start = time.process_time()
    yield
    assert time.process_time() - start < 5


@pytest.fixture(name="folder")
def zoo_folder(tmp_path):
    """A copy of a folder of the zoo."""
    return shutil.copytree(registry.file_of(registry.find(NAME)).parent, tmp_path / "zoo")


def refused(call, path):
    """A call that must raise one sentence with a file's name; returns it."""
    with pytest.raises(ValueError) as error:
        call()
    text = str(error.value)
    assert str(path) in text and "\n" not in text and "\x1b" not in text and len(text) < 600
    return text

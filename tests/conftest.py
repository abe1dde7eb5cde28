"""Fixtures of the whole test suite."""

import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before the first import of TensorFlow
if os.environ.get("KERAS_BACKEND") == "jax":  # tiny models spend their time in XLA's compiler
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import hypothesis
import keras
import pytest

hypothesis.settings.register_profile("no_deadline", deadline=None)  # the first example may trace and compile
hypothesis.settings.load_profile("no_deadline")


@pytest.fixture(autouse=True)
def _seed():
    keras.utils.set_random_seed(1)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the data sets, for the tests that need real images."""
    folder = os.environ.get("KERAS_HIGHWAY_DATA")
    if not folder:
        pytest.skip("needs real data: set KERAS_HIGHWAY_DATA to the folder that holds the data sets")
    if not Path(folder).is_dir():
        pytest.skip(f"KERAS_HIGHWAY_DATA={folder!r} is not a folder")
    return Path(folder)

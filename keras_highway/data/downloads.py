"""The data sets that Keras downloads, once, and compares with their SHA-256."""

import contextlib
import importlib
import socket
import sys
from collections.abc import Generator

import numpy as np

_PATIENCE = 30.0  # seconds without a byte

Split = tuple[np.ndarray, np.ndarray]


def download(name: str) -> tuple[Split, Split]:
    """Return the training and test split of a data set of `keras.datasets`; raise an OSError if it cannot be had."""
    datasets = importlib.import_module("keras.datasets")  # not before it is needed: Keras takes seconds
    with _on_stderr(), _patience():
        try:
            return getattr(datasets, name).load_data()
        except MemoryError:
            raise
        except Exception as error:  # Keras's own are bare Exceptions
            raise OSError(" ".join(str(error).split()).rstrip(".")) from error


@contextlib.contextmanager
def _on_stderr() -> Generator[None]:
    """Keras tells of a download on stdout, where results go."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


@contextlib.contextmanager
def _patience() -> Generator[None]:
    """End a download that has stopped, which Keras would wait for."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_PATIENCE)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)

"""Networks without memory for their weights: shapes and names alone."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import keras

_Result = TypeVar("_Result")


def without_values(function: Callable[[], _Result]) -> _Result:
    """Calls a function in which new variables have shapes and names and no values.

    In a thread of its own: Keras notes variables without values by thread and,
    at the end of its next scope in that thread, gives all of them values. What
    else it keeps by thread, e.g. the dtype policy, has its default there.

    Args:
        function: Takes nothing.

    Returns:
        What it returns.

    Raises:
        Exception: What it raises.
    """

    def called():
        with keras.StatelessScope(initialize_variables=False):
            return function()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(called).result()

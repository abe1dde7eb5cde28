"""Which arguments are whole numbers: Python's and NumPy's integers, never a bool or a span of time.

Who calculates with one takes `int(number)`: NumPy's small integers overflow.
"""

from typing import Any

import numpy as np


def is_whole(number: Any) -> bool:
    """Whether an argument is a whole number; `True` and `3.0` are not."""
    return isinstance(number, int | np.integer) and not isinstance(number, bool | np.timedelta64)


def is_count(number: Any) -> bool:
    """Whether an argument is a whole number, at least 1."""
    return is_whole(number) and number >= 1

"""Names of a model's variables, by which a file holds them."""

from collections.abc import Iterable

import keras


def by_path(variables: Iterable[keras.Variable]) -> dict[str, keras.Variable]:
    """Returns variables by their paths; where several have one, those after the first are numbered: `conv/kernel:2`.

    Layers of one name may be in several nested models.
    """
    named: dict[str, keras.Variable] = {}
    times: dict[str, int] = {}
    for variable in variables:
        path = variable.path
        times[path] = times.get(path, 0) + 1
        named[path if times[path] == 1 else f"{path}:{times[path]}"] = variable
    return named

"""Which class of weights each class of a test set is, by its name."""

from collections.abc import Sequence

import numpy as np

from keras_highway.data.datasets import Dataset
from keras_highway.data.transforms import imagenet_classes

_SHOWN = 5  # names in a message


def class_labels(
    where: str, names: Sequence[str], classes: int, numbered: bool = False, class_names: Sequence[str] = ()
) -> dict[str, int]:
    """Return the class number of the weights for each class of a test set; arguments as in `folder_test_set`."""
    if numbered:
        return _numbers(where, names, classes)
    numeric = bool(names) and all(name.isdecimal() and int(name) < classes for name in names)
    if classes == 1000 and numeric and sorted(names) != sorted(class_names):
        raise ValueError(f"{where} has folders of numbers, as ImageNet-V2: pass --v2 to take them for class numbers.")
    known = {identifier: i for i, (identifier, _) in enumerate(imagenet_classes())}
    orders = ([], list(known), [name for _, name in imagenet_classes()], [str(i) for i in range(classes)])
    if classes == len(known) and names and set(names) <= set(known) and list(class_names) in orders:
        return {name: known[name] for name in names}
    if len(names) != classes:
        missing = sorted(set(class_names) - set(names))
        which = f" Not there: {_some(missing)}." if class_names and set(names) < set(class_names) else ""
        raise ValueError(f"The weights have {classes} classes, {where} holds {len(names)}.{which}")
    if set(names) <= set(known) and (labels := _imagenet_labels(where, names, class_names)):
        return labels
    numbers = [str(i) for i in range(classes)]
    # Weights without names number their classes, which does not identify folders whose names are numbers.
    if not class_names or list(class_names) == numbers:
        return {name: i for i, name in enumerate(names)}
    if sorted(names) == sorted(numbers) != sorted(class_names):
        return _numbers(where, names, classes)
    _check_same(where, names, class_names)
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"{where} has two classes of the name {twice!r} in another order: they cannot be told apart.")
    return {name: i for i, name in enumerate(class_names)}


def in_words(names: Sequence[str]) -> list[str]:
    """Return names of classes; in words, where all are WordNet's identifiers of ImageNet's."""
    known = dict(imagenet_classes())
    return [known[name] for name in names] if set(names) <= set(known) else list(names)


def relabelled(where: str, data: Dataset, class_names: Sequence[str]) -> Dataset:
    """Return a data set with the labels of weights that have its classes; unchanged if `class_names` is empty."""
    if not class_names or tuple(class_names) == tuple(data.classes):
        return data
    labels = class_labels(where, data.classes, len(class_names), class_names=class_names)
    numbers = np.array([labels[name] for name in data.classes])
    return data._replace(y_train=numbers[data.y_train], y_test=numbers[data.y_test], classes=tuple(class_names))


def _numbers(where: str, names: Sequence[str], classes: int) -> dict[str, int]:
    """Labels of classes whose names are their numbers."""
    wrong = [name for name in names if not (name.isdecimal() and int(name) < classes)]
    if wrong or not names:
        raise ValueError(
            f"{where} must hold folders named 0 to {classes - 1}. Received: {wrong[0] if wrong else 'none'}"
        )
    return {name: int(name) for name in names}


def _check_same(where: str, names: Sequence[str], class_names: Sequence[str]) -> None:
    """Raise a ValueError where a test set has other classes than the weights."""
    if sorted(names) == sorted(class_names):
        return
    strange, missing = (
        sorted(set(own) - set(others)) or sorted(own) for own, others in ((names, class_names), (class_names, names))
    )
    raise ValueError(
        f"The weights' classes are not those of {where}: it has {_some(strange)}, they have {_some(missing)}. Test on "
        "the classes that they were trained on, under the same names."
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} others" if len(names) > _SHOWN else "")


def _imagenet_labels(where: str, names: Sequence[str], class_names: Sequence[str]) -> dict[str, int]:
    """Labels of folders that WordNet's identifiers name, of weights whose classes are ImageNet's, too; else none."""
    identified = dict(imagenet_classes())
    if not class_names or not set(class_names) <= set(identified.values()):
        return {}
    _check_same(where, [identified[name] for name in names], class_names)
    free = list(enumerate(class_names))  # two of ImageNet's names stand for two classes each
    labels = {}
    for name in sorted(names):  # those two in the order of their identifiers, as ImageNet has them
        place = next(pair for pair in free if pair[1] == identified[name])
        free.remove(place)
        labels[name] = place[0]
    return labels

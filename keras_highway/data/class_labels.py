"""Which class of weights each class of a test set is, by its name."""

from collections.abc import Sequence

from keras_highway.data.transforms import imagenet_classes


def class_labels(
    where: str, names: Sequence[str], classes: int, numbered: bool = False, class_names: Sequence[str] = ()
) -> dict[str, int]:
    """Returns which class of weights each class of a test set is.

    Args:
        where: What messages call the test set.
        names: Of its classes, e.g. of its folders, in order.
        classes: As in `photographs.folder_test_set`.
        numbered: As there.
        class_names: As there.

    Raises:
        ValueError: If they are not the weights' classes.
    """
    if numbered:
        wrong = [name for name in names if not (name.isdecimal() and int(name) < classes)]
        if wrong or not names:
            raise ValueError(
                f"{where} must hold folders named 0 to {classes - 1}. Received: {wrong[0] if wrong else 'none'}"
            )
        return {name: int(name) for name in names}
    if classes == 1000 and names and all(name.isdecimal() and int(name) < classes for name in names):
        raise ValueError(f"{where} has folders of numbers, as ImageNet-V2: pass --v2 to take them for class numbers.")
    known = {identifier: i for i, (identifier, _) in enumerate(imagenet_classes())}
    if classes == len(known) and names and set(names) <= set(known):
        return {name: known[name] for name in names}
    if len(names) != classes:
        raise ValueError(f"The weights have {classes} classes, {where} holds {len(names)} folders, one per class.")
    if set(names) <= set(known) and (labels := _imagenet_labels(where, names, class_names)):
        return labels
    # Weights without names number their classes, which does not identify folders whose names are numbers.
    unknown = tuple(class_names) == tuple(map(str, range(classes)))
    in_order = class_names if not unknown and sorted(class_names) == sorted(names) else names
    return {name: i for i, name in enumerate(in_order)}


def _imagenet_labels(where: str, names: Sequence[str], class_names: Sequence[str]) -> dict[str, int]:
    """Labels of folders that WordNet's identifiers name, of weights whose classes are ImageNet's, too; else none."""
    identified = dict(imagenet_classes())
    if not class_names or not set(class_names) <= set(identified.values()):
        return {}
    if sorted(class_names) != sorted(identified[name] for name in names):
        strange = sorted({identified[name] for name in names} - set(class_names)) or names
        raise ValueError(
            f"The weights' classes are {', '.join(class_names)}; {where} holds others: {', '.join(strange)}. Name the "
            "folder of the data set they were trained on."
        )
    free = list(enumerate(class_names))  # two of ImageNet's names stand for two classes each
    labels = {}
    for name in names:
        place = next(pair for pair in free if pair[1] == identified[name])
        free.remove(place)
        labels[name] = place[0]
    return labels

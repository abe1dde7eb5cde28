"""The photographs of a training or test set by class: `CLASS/*`, and the layout of Tiny ImageNet's archive."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".webp")  # other files are left alone, in training, too
ANNOTATIONS = "val_annotations.txt"
_IMAGES = "images"


def classes_in(folder: Path) -> list[str]:
    """Returns the names of a folder's classes, in order.

    Args:
        folder: Of sub-folders, one per class, or of `images/*` and Tiny
            ImageNet's `val_annotations.txt`: a file name, a tab, its class, and
            what else may stand in a line.

    Raises:
        ValueError: If the annotations are not of this form.
    """
    if (folder / ANNOTATIONS).is_file():
        return sorted({name for _, name in _annotated(folder)})
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


def photographs_of(folder: Path, names: list[str]) -> dict[str, list[Path]]:
    """Returns the photographs of each class, sorted by name.

    Args:
        folder: As in `classes_in`. A class's photographs lie in its folder,
            or where it has none in the folder `images` in it.
        names: Some of its classes.

    Raises:
        ValueError: If the annotations are of other files than those in `images`.
    """
    if (folder / ANNOTATIONS).is_file():
        return _annotated_photographs(folder, names)
    return {name: _images(folder / name) or _images(folder / name / _IMAGES) for name in names}


def _images(folder: Path) -> list[Path]:
    """The images in a folder, which may not exist, sorted as their paths are."""
    if not folder.is_dir():
        return []
    return sorted((path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES), key=str)


def _annotated_photographs(folder: Path, names: list[str]) -> dict[str, list[Path]]:
    found = {path.name: path for path in _images(folder / _IMAGES)}
    of = dict(_annotated(folder))
    if differ := sorted(set(of) ^ set(found)):
        where = "not there" if differ[0] in of else "without a class"
        raise ValueError(
            f"{folder / ANNOTATIONS} must name the images in {folder / _IMAGES}, each once. Received: {differ[0]}, "
            f"{where}, and {len(differ) - 1} others. Unpack the archive anew."
        )
    pairs = sorted((name, file) for file, name in of.items())
    by_class = {name: [found[file] for _, file in rows] for name, rows in groupby(pairs, lambda pair: pair[0])}
    return {name: by_class.get(name, []) for name in names}


def _annotated(folder: Path) -> Iterator[tuple[str, str]]:
    """Yields each image's file name and class."""
    for number, line in enumerate((folder / ANNOTATIONS).read_text("utf-8").splitlines(), 1):
        file, _, rest = line.partition("\t")
        name = rest.split("\t")[0].strip()
        if not (file and name):
            raise ValueError(
                f"{folder / ANNOTATIONS}, line {number}, must be an image's file name, a tab and its class. "
                f"Received: {line[:80]!r}"
            )
        yield file, name

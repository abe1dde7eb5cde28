"""The photographs of a training or test set by class: `CLASS/*`, and the layout of Tiny ImageNet's archive."""

import os
from collections.abc import Iterator
from pathlib import Path

from keras_highway._support.files import read_bounded

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".webp")  # other files are left alone, in training, too
ANNOTATIONS = "val_annotations.txt"
_IMAGES = "images"


def classes_in(folder: Path) -> list[str]:
    """Return the classes of a folder, in order: its sub-folders, or those in Tiny ImageNet's `val_annotations.txt`."""
    if annotated := _annotated(folder):
        return sorted(set(annotated.values()))
    # Hidden folders are other programs', such as .ipynb_checkpoints; Keras's image_dataset_from_directory skips them.
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    moved = (folder / ANNOTATIONS).is_file()
    if names == [_IMAGES] and _images(folder / _IMAGES):
        raise ValueError(
            f"{folder} holds {_IMAGES}/* and no {ANNOTATIONS}, the list of their classes: add it, or put the images "
            "into one sub-folder per class."
        )
    return [name for name in names if not (moved and name == _IMAGES)]


def photographs_of(folder: Path, names: list[str]) -> Iterator[tuple[str, list[Path]]]:
    """Yield classes with their photographs, sorted by name: `CLASS/*` or, without any, `CLASS/images/*`."""
    if annotated := _annotated(folder):
        files: dict[str, list[Path]] = {name: [] for name in names}
        for file, name in sorted(annotated.items()):
            if name in files:
                files[name].append(folder / _IMAGES / file)
        yield from files.items()
        return
    for name in names:
        yield name, _images(folder / name) or _images(folder / name / _IMAGES)


def _images(folder: Path) -> list[Path]:
    """Return the images in a folder, which may not exist, sorted as their paths are."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:  # what is no link it knows without another look at the disk
        # Hidden ones are no photographs: macOS keeps what it knows of 0.jpg in ._0.jpg.
        named = (e for e in entries if not e.name.startswith(".") and os.path.splitext(e.name)[1].lower() in SUFFIXES)
        names = [e.name for e in named if not _is_folder(e)]
    return sorted((folder / name for name in names), key=str)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, which whatever reads it reports
        return False


def _annotated(folder: Path) -> dict[str, str]:
    """Return the class of each file in `images` by Tiny ImageNet's list; nothing for other layouts."""
    path = folder / ANNOTATIONS
    if not path.is_file():
        return {}
    images = {image.name for image in _images(folder / _IMAGES)}
    if not images:
        return {}
    try:
        lines = read_bounded(path).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8: {error}.") from error
    classes: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        file, name = [*line.split("\t"), ""][:2]
        if not (file and name) or file in classes:
            raise ValueError(
                f"{path}, line {number}, must be an image's file name, which no line before has, a tab and its class. "
                f"Received: {line[:80]!r}"
            )
        classes[file] = name
    if differ := sorted(set(classes) ^ images):
        where = "not there" if differ[0] in classes else "without a class"
        raise ValueError(
            f"{path} must name the images in {folder / _IMAGES}, all and no others. Received: {differ[0]}, {where}, "
            f"and {len(differ) - 1} others. Unpack the archive anew, or take out what is not of it."
        )
    return classes

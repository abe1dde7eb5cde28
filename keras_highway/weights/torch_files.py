"""PyTorch's `.safetensors` of ResNets as weight files of ours: converted once for every content, and kept."""

import atexit
import dataclasses
import functools
import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path

from keras_highway._support.files import atomic_write_json, read_regular, sha256_of
from keras_highway.convert.timm import OtherConfigError, model_of, read_config, read_safetensors, resnet_of
from keras_highway.data.transforms import imagenet_classes
from keras_highway.hub.client import home_folder
from keras_highway.hub.download import READ_ONLY, fetch, fetch_if_there, locked
from keras_highway.hub.names import HubName
from keras_highway.variants import VARIANTS
from keras_highway.weights import file as weights_file
from keras_highway.weights.info import WeightsInfo, from_json, to_json
from keras_highway.weights.registry import DATA_LICENCES, check_checkout, note_repository

SUFFIX = ".safetensors"
FILE = "model.safetensors"
CONFIG = "config.json"
_CONVERSION = 2  # raised where a conversion comes to compute something else: files that were kept are made anew
_PICKLES = (".bin", ".pt", ".pth", ".pth.tar")


def refuse_pickles(weights: str) -> None:
    """Raise a ValueError for a file that only Python's pickle can read: it may run any code."""
    if weights.endswith(_PICKLES) and Path(weights).is_file():
        raise ValueError(
            f"{weights} is a pickle, which can run code when it is opened. Save its state dict with "
            f"safetensors.torch.save_file(state_dict, 'model{SUFFIX}') where you trust it, and pass that file."
        )


def of_row(row: WeightsInfo) -> Path:
    """Return the weight file made of the file of a row, downloaded and checked against the row's hash.

    Raises:
        ValueError: If the file is not what it should be.
        HubError: If it cannot be downloaded.
    """
    torch_file = fetch(HubName(row.repository, row.revision), row.file, row.sha256, check=read_safetensors)
    note = f"{row.repository} from the Hub, once. Weights: {row.licence}; {row.origin}. {row.data_licence}."
    facts = {"origin": row.origin, "repository": row.repository, "licence": row.licence}
    return _converted(torch_file, row.variant, row.name, note, **facts)


def of_repository(name: HubName, torch_file: Path, variant: str) -> tuple[Path, WeightsInfo | None]:
    """Return the weight file made of a repository's file, and what timm's `config.json` beside it states about them.

    Args:
        name: The repository.
        torch_file: Its `model.safetensors`.
        variant: The architecture, `""` for the ResNet that the file's names
            are of.

    Raises:
        ValueError: If the file is not of the variant, or timm's
            `config.json` is of a network that this package lacks, or that
            looks at images as it cannot.
        HubError: If the Hub fails.
    """
    variant = variant or _resnet_of(torch_file)
    try:
        row = describe(name)
    except OtherConfigError:
        row = None  # another library's config.json: only the weights describe themselves
    label = f"{name.repository.replace('/', '--')}.{variant}"
    note = f"{name}, once. Its licence is that of its page."
    path = _converted(torch_file, variant, label, note, repository=name.repository)
    return path, row and dataclasses.replace(row, variant=variant)


def of_file(torch_file: Path, variant: str) -> Path:
    """Return the weight file made of a `.safetensors` file on this machine.

    Args:
        torch_file: The file.
        variant: The architecture, `""` for the ResNet that its names are of.

    Raises:
        ValueError: If it is not of the variant.
    """
    variant = variant or _resnet_of(torch_file)
    return _converted(torch_file, variant, f"{torch_file.name.removesuffix(SUFFIX)}.{variant}", f"{torch_file}, once.")


def pin(row: WeightsInfo) -> dict[str, str]:
    """Download the file of a row and writes its commit and sha256 into the checkout's table.

    Every later download is of that commit, and refused where the hash differs.

    Args:
        row: A row of third-party weights, or of a highway net made of them.

    Returns:
        The commit as `revision`, and the `sha256`.

    Raises:
        ValueError: If the row has no third-party file, or the package
            does not run from a checkout.
        HubError: If the file cannot be downloaded.
    """
    if not row.file.endswith(SUFFIX):
        raise ValueError(
            f"Only third-party weights are pinned: `publish` records those of the zoo. Received: weights={row.name!r}"
        )
    check_checkout()
    path = fetch(HubName(row.repository, row.revision), row.file, row.sha256, check=read_safetensors)
    pinned = {"revision": path.parent.name, "sha256": sha256_of(path)}  # the cache names folders by their commits
    variant, _, tag = row.name.partition(".")
    note_repository(f"{getattr(VARIANTS[variant], 'baseline', '') or variant}.{tag}", pinned)
    return pinned


def describe(name: HubName) -> WeightsInfo | None:
    """Return what timm's `config.json` states about the weights of a repository, None if there is no such file.

    Args:
        name: The repository.

    Raises:
        OtherConfigError: If it is not one of timm's.
        ValueError: If it is, of a network that this package lacks.
        HubError: If the Hub fails.
    """
    path = fetch_if_there(name, CONFIG)
    if path is None:
        return None
    config = read_config(path)
    if config.architecture not in VARIANTS:
        raise ValueError(
            f"{name} has weights of {config.architecture!r}, which is not a variant of keras_highway. Where its net is "
            f"that of a variant, download its {FILE}, and give the path."
        )
    names = config.names or tuple(map(str, range(config.classes)))
    row = WeightsInfo(
        name=name.repository,
        variant=config.architecture,
        data="imagenet" if config.imagenet else "",
        recipe="",
        classes=tuple(name for _, name in imagenet_classes()) if config.imagenet else names,
        transform=config.transform,
        sha256="",
        licence=config.licence,
        data_licence=DATA_LICENCES["imagenet"] if config.imagenet else "",
        origin=f"published as {name}",
        repository=name.repository,
        revision=name.revision,
        file=FILE,
    )
    return from_json(to_json(row))  # checked as any description from outside


def _resnet_of(torch_file) -> str:
    variant = resnet_of(torch_file)
    if not variant:
        raise ValueError(
            f"{torch_file} does not have the names of a ResNet50, ResNet101 or ResNet152 of timm or torchvision. "
            "For another network give its variant: keras_highway.create_model(VARIANT, weights=...)."
        )
    return variant


def _converted(torch_file: Path, variant: str, name: str, note: str, **facts: str) -> Path:
    """Return the weight file made of a PyTorch file; made once for every content of that file."""
    kept = home_folder() / "keras_highway" / "converted"
    try:
        content = read_regular(torch_file, weights_file.LARGEST)
    except ValueError as error:
        raise weights_file.WeightFileError(f"{torch_file} is not a safetensors file: {error}.") from error
    content_sha256 = hashlib.sha256(content).hexdigest()
    made_by = hashlib.sha256(repr((_CONVERSION, VARIANTS.get(variant))).encode()).hexdigest()
    stem = f"{name}-{content_sha256[:16]}-{made_by[:8]}"
    target, record = files = [kept / f"{stem}{suffix}" for suffix in (weights_file.SUFFIX, ".json")]
    with locked(home_folder(), f"converted/{name}"):
        found = _recorded(target, record)
        if not found and not _writable(kept):
            target, record = (_temporary_folder() / file.name for file in files)
            found = _recorded(target, record)
            note += f" {kept} cannot be written: the result is kept until this process ends."
        if not found:
            print(f"{name}: converting {note}", file=sys.stderr)
            convert_torch_file(torch_file, target, variant, content)
            atomic_write_json(record, {"sha256": sha256_of(target), "source_sha256": content_sha256, **facts})
    return target


def _writable(folder: Path) -> bool:
    """Make a folder, and returns whether we may write there: a home may be read-only, as in a container."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise
        return False
    return os.access(folder, os.W_OK)


def _temporary_folder() -> Path:
    """Where this process keeps conversions that it cannot keep for good; removed as it ends."""
    folder = _folder_of(os.getpid())
    if not folder.is_dir():  # something tidies up after a while
        _folder_of.cache_clear()
    return _folder_of(os.getpid())


@functools.cache
def _folder_of(process: int) -> Path:
    """Return the temporary folder of one process: a fork has its own, for its parent may end before it."""
    folder = tempfile.TemporaryDirectory(prefix="keras_highway-", ignore_cleanup_errors=True)
    atexit.register(folder.cleanup)
    return Path(folder.name)


def convert_torch_file(torch_file: Path, target: Path, variant: str, content: bytes | None = None) -> None:
    """Write the weight file of a variant from a state dict with PyTorch's names; whole or not at all.

    Args:
        torch_file: A `.safetensors` file, see `convert.timm.model_of`.
        target: The `.weights.h5` file to write.
        variant: The architecture, e.g. `"resnet50"`.
        content: Its bytes, where they have been read.

    Raises:
        ValueError: If names or shapes are not the variant's.
    """
    model, classes = model_of(torch_file, variant, content)
    weights_file.save(model, target, variant, classes)


def _recorded(target, record) -> bool:
    """Whether a conversion was finished, and its file is as it was then."""
    try:
        return sha256_of(target) == json.loads(record.read_text("utf-8"))["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return False

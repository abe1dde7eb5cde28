"""On what a run was trained, and with which version of this program."""

import importlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import keras

from keras_highway._support.processor import processor_fields
from keras_highway.weights.registry import in_checkout

COMMIT_VARIABLE = "KERAS_HIGHWAY_COMMIT"


def environment(strategy) -> dict[str, Any]:
    """Returns commit, versions and hardware of a run."""
    backend = keras.backend.backend()
    return {
        "commit": _commit(),
        "backend": backend,
        "versions": {name: importlib.import_module(name).__version__ for name in ("keras", backend, "numpy")},
        "python": platform.python_version(),
        "hardware": hardware(),
        "strategy": strategy.name,
        "replicas": strategy.replicas,
    }


def hardware() -> str:
    """Returns accelerators, number of cores and processor in words."""
    cores = f"{os.cpu_count()} CPU cores, {platform.machine()} {_processor()}".strip()
    return ", ".join([*accelerators(), cores])


def _commit() -> str | None:
    """The commit of this program; without git or a checkout that in COMMIT_VARIABLE, else the installed version."""
    here = Path(__file__).parent
    if not in_checkout():  # git would find the repository around a user's environment
        return os.environ.get(COMMIT_VARIABLE) or _version()
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False)
        changes = subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=here, capture_output=True, check=False)
    except OSError:
        return os.environ.get(COMMIT_VARIABLE)
    if head.returncode != 0:
        return os.environ.get(COMMIT_VARIABLE)
    return head.stdout.strip() + ("-dirty" if changes.returncode == 1 else "")


def _version() -> str | None:
    try:
        return f"keras-highway {importlib.metadata.version('keras-highway')}"
    except importlib.metadata.PackageNotFoundError:
        return None


def accelerators() -> list[str]:
    """Returns the GPUs of this process, as `2 x NAME`."""
    if keras.backend.backend() == "jax":
        import jax

        names = [device.device_kind for device in jax.local_devices() if device.platform != "cpu"]
    elif keras.backend.backend() == "torch":
        import torch  # pyright: ignore[reportMissingImports] (an extra)

        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    else:
        import tensorflow as tf

        gpus = tf.config.list_physical_devices("GPU")
        names = [tf.config.experimental.get_device_details(gpu).get("device_name", "GPU") for gpu in gpus]
    return [f"{names.count(name)} x {name}" for name in sorted(set(names))]


def _processor() -> str:
    fields = processor_fields()
    return fields.get("model name", "") if fields else platform.processor()

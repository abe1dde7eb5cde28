"""Files of a run: recipe.json, data.json, environment.json, sessions.json, log.csv, checkpoint.npz and its results."""

import contextlib
import csv
import dataclasses
import importlib
import importlib.metadata
import itertools
import json
import os
import platform
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import msgspec
from filelock import FileLock, Timeout

from keras_highway._support.files import (
    append,
    atomic_write,
    atomic_write_json,
    may_pass,
    read_bounded,
    read_lines,
    sweep,
)
from keras_highway._support.fused_ops import processor_fields
from keras_highway._support.schema import refuse, reworded
from keras_highway.data.vocabulary import VOCABULARY
from keras_highway.training.checkpoint import epochs_of
from keras_highway.weights.info import FILE, ROW
from keras_highway.weights.registry import in_checkout

FINGERPRINT = "fingerprint"  # of the data, see `Source`
_MAY_CHANGE = ("commit", "versions", "python", "backend", "hardware", "strategy", "replicas")  # between sessions
_BEGUN = ("checkpoint.npz", "log.csv", "result.json", "diverged.json")
_ABOUT = ("environment.json", "sessions.json", "data.json", "steps.csv")
_REMOVED = {"rate_multipliers": [], "plateau_delta": 0.0}  # fields that recipes of images had, and their defaults
_REMEDY = "Choose another --out, or remove the folder."


class _Known(msgspec.Struct):
    """Fields that every recipe.json has."""

    name: str
    variant: str
    weights: str


class _Epochs(msgspec.Struct):
    """Fields of a result.json that the loop reads."""

    epochs: int | None = None
    of_epochs: int | None = None


def _read(path: Path, kind: Any = dict[str, Any]) -> Any:
    """Return the values of a JSON file of a type."""
    with reworded(f"{path} is damaged", (ValueError, RecursionError)):
        return msgspec.json.decode(read_bounded(path), type=kind)


def defaults_of(recipe) -> dict[str, Any]:
    """Return the fields of a recipe that have a default, with these."""
    return {f.name: f.default for f in dataclasses.fields(recipe) if f.default is not dataclasses.MISSING}


def differences(known: dict, recipe: dict, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields in which a recipe.json differs from a recipe, with the values of the file."""
    known = {k: v for k, v in known.items() if k in recipe or k in defaults or _REMOVED.get(k, ...) != v}
    then, now = (json.loads(json.dumps({**defaults, **fields})) for fields in (known, recipe))
    for fields in (then, now):  # the order of settings does not matter
        if isinstance(fields.get("overrides"), list):
            fields["overrides"] = sorted(fields["overrides"], key=str)
    other = [f for f in {**now, **then} if f not in then or f not in now or then[f] != now[f]]
    return {field: then.get(field) for field in other}


def same_recipe(known: dict, recipe: dict, defaults: Mapping[str, Any]) -> bool:
    """Whether a recipe.json has the settings of a recipe; its `source` is a text. Arguments as in `differences`."""
    return not differences(known, recipe, defaults).keys() - {"source"}


def is_run_of(path: Path, recipe) -> bool:
    """Whether the recipe.json of a run's folder has the settings of a recipe."""
    return same_recipe(_read(path / "recipe.json"), recipe.to_dict(), defaults_of(recipe))


def check_finished(path: Path, recipe) -> None:
    """Raise a ValueError if a folder holds a finished run of another recipe."""
    if not is_run_of(path, recipe):
        raise ValueError(f"{path} holds a finished run of another recipe than {recipe.name} as set now. {_REMEDY}")


def has_whole_result(path: Path) -> bool:
    """Whether a run's folder holds the result of all its epochs; a run ended early has another result."""
    result = path / "result.json"
    return result.exists() and _read(result, _Epochs).of_epochs is None


def has_begun(path: Path) -> bool:
    """Whether a run's folder holds something that was trained, or diverged."""
    return any((path / name).exists() for name in _BEGUN)


def _recipe_in(path: Path) -> dict[str, Any] | None:
    """Return the recipe of the run in a folder, if any; refuse a folder that holds something else."""
    held = [name for name in (*_BEGUN, *_ABOUT, FILE, ROW) if (path / name).exists()]
    recipe = path / "recipe.json"  # read after the others: the chief of several processes writes it first
    if recipe.exists():
        _read(recipe, _Known)
        return _read(recipe)
    if held:
        raise ValueError(f"{path} holds {', '.join(held)} and no recipe.json. Restore that, or choose another --out.")
    return None


class RunFolder:
    """A run's folder; a run that finds its own recipe there resumes where it stopped."""

    def __init__(self, path, recipe, strategy):
        self.path = Path(path)
        self.checkpoint, self.log, self.steps, self.result = (
            self.path / name for name in ("checkpoint.npz", "log.csv", "steps.csv", "result.json")
        )
        self._writes, self._lock = strategy.is_chief, None
        self._environment = environment(strategy)
        self.path.mkdir(parents=True, exist_ok=True)
        fields, before = recipe.to_dict(), _recipe_in(self.path)
        other = before is not None and not same_recipe(before, fields, defaults_of(recipe))
        if other and has_begun(self.path):
            raise ValueError(f"{self.path} holds a run of another recipe, see its recipe.json. {_REMEDY}")
        if self._writes:
            self._lock = self._locked()
            try:
                self._begin(fields, other)
            except BaseException:
                self.close()  # a traceback that is kept would keep this object
                raise

    def _begin(self, recipe: dict, other: bool) -> None:
        """Write the first files of a run; `other`: replace the files of another run that trained nothing."""
        if other:
            for name in _ABOUT:
                (self.path / name).unlink(missing_ok=True)
        if self._lock is not None:  # no other process writes here
            sweep(self.path, own=(*_BEGUN, *_ABOUT, FILE, ROW, "recipe.json", VOCABULARY))
        atomic_write_json(self.path / "recipe.json", recipe)
        if not (self.path / "environment.json").exists():
            atomic_write_json(self.path / "environment.json", self._environment)

    def _locked(self) -> FileLock | None:
        """Keep other processes from writing here until `close`, or as long as this object lives."""
        lock = FileLock(self.path / ".lock", timeout=0, thread_local=False)
        try:
            lock.acquire()
            return lock
        except Timeout:
            raise ValueError(f"Another process is training in {self.path}: end it, or choose another --out.") from None
        except OSError as error:
            if may_pass(error):
                raise OSError(error.errno, error.strerror, lock.lock_file) from error
            # Lustre mounted without `flock`, NFS without its lock daemon.
            print(f"{self.path} is on a file system without locks: start no second run there.", file=sys.stderr)
            return None

    def close(self) -> None:
        """Let another run write here, of this process or of another; a second call does nothing."""
        if self._lock is not None:
            self._lock.release()

    def check_shared(self, strategy) -> None:
        """Refuse processes that do not see each other's files; every process must call it."""
        if strategy.shard.count == 1:
            return
        number = strategy.total(random.SystemRandom().randrange(2**15))  # new, and the same everywhere
        mark = self.path / f".shared-{number}"
        try:
            if self._writes:
                mark.touch()
            strategy.total(1)  # wait until it is there
            found = strategy.total(int(mark.exists()))
        finally:
            if self._writes:
                mark.unlink(missing_ok=True)
        if found != strategy.replicas:
            raise ValueError(
                f"The processes of this run do not share {self.path}: put it on a file system that all of them see. "
                f"Received: {found} of {strategy.replicas} replicas find the file of the first process"
            )

    def check_data(self, facts: dict[str, Any]) -> None:
        """Write the data of a new run to data.json; compare the data of a resumed run with it."""
        path = self.path / "data.json"
        if not has_begun(self.path):
            if self._writes:
                atomic_write_json(path, facts)
            return
        known = _read(path) if path.exists() else {}
        for name in sorted(known.keys() & facts.keys(), key=lambda name: (name == FINGERPRINT, name)):
            if known[name] != facts[name]:
                length, order = (12, " Its order counts, too.") if name == FINGERPRINT else (200, "")
                then, now = (str(value)[:length] for value in (known[name], facts[name]))
                raise ValueError(
                    f"{self.path} holds a run that began with other data: {name} {then}, now {now}.{order} Give its "
                    "data, or choose another --out."
                )

    def begin_session(self, epoch: int, step: int) -> None:
        """Note the step, version and machine from which the run resumes; delete a stale result.

        A result is stale if its weights are gone, or if it has more epochs than
        the resumed run: it would later be taken for that run's.
        """
        if not self._writes:
            return
        epochs = (self.known_result() or {}).get("epochs")
        if not isinstance(epochs, int) or epochs > epoch:
            self.drop_result()
        path = self.path / "sessions.json"
        before = _read(path, list[dict[str, Any]]) if path.exists() else []
        atomic_write_json(path, [*before, {"from_step": step, **self._environment}])

    def environment(self) -> dict:
        """Return commit, versions and hardware of the first session, and later changes."""
        if not self._writes:
            return self._environment
        sessions = _read(self.path / "sessions.json", list[dict[str, Any]])
        several = {key: list(dict.fromkeys(json.dumps(s[key]) for s in sessions if key in s)) for key in _MAY_CHANGE}
        changed = {f"{key}_changes": [*map(json.loads, values)] for key, values in several.items() if len(values) > 1}
        return {**_read(self.path / "environment.json"), **changed}

    def rows(self) -> list[dict]:
        """Return the epochs logged so far."""
        rows = read_lines(self.log) if self.log.exists() else []
        if any(not row.get(name) for name in ("epoch", "train_loss") for row in rows):
            raise ValueError(f"{self.log} lacks epoch or train_loss in some lines: restore it, or remove the folder.")
        return rows

    def rows_until(self, epoch: int) -> list[dict]:
        """Return the log of the epochs before a restored state; drop later lines."""
        rows, saved = self.rows(), self.checkpoint.exists()
        refuse(
            (
                saved and len(rows) < epoch,
                f"{self.log} has {len(rows)} epochs and {self.checkpoint} was saved after {epoch}: restore the log, "
                "or remove the folder.",
            ),
            (
                not saved and (len(rows) > 1 or self.known_result()),
                f"{self.path} holds a run of {len(rows) or 'some'} epochs and no {self.checkpoint.name}. Restore that "
                "to resume, or choose another --out to train again.",
            ),
        )
        return rows[:epoch] if saved else []

    def write_rows(self, rows: list[dict]) -> None:
        """Write the log, whole or not at all."""
        if not self._writes:
            return

        def write(path):
            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)

        atomic_write(self.log, write)

    def known_result(self) -> dict | None:
        """Return the result, or `None` if it or its weights are missing."""
        if not (self.result.exists() and (self.path / FILE).exists()):
            return None
        _read(self.result, _Epochs)
        return _read(self.result)

    def final_result(self, epochs: int) -> dict | None:
        """Return the result of a run that finished after so many epochs; else `None`."""
        result = self.known_result() if epochs_of(self.checkpoint) == epochs else None
        return result if (result or {}).get("epochs") == epochs else None

    def drop_result(self) -> None:
        """Delete the result before its weights are replaced: a result belongs to the weights next to it."""
        if self._writes:
            self.result.unlink(missing_ok=True)

    def cut_step_losses(self, last: int) -> None:
        """Make the file of the steps' losses, or drop its steps after `last`, which are taken again."""
        lines = self.steps.read_text("utf-8").splitlines() if self.steps.exists() else ["step,train_loss"]
        whole = itertools.takewhile(lambda row: row[1].startswith(f"{row[0]},"), enumerate(lines[1:], 1))
        known = sum(1 for _ in whole)
        if known < last:  # on every process: the others would wait for the chief
            raise ValueError(
                f"{self.steps} has {known} steps of the {last} that were taken: resume without --log-steps, "
                "or restore the file."
            )
        if self._writes:
            atomic_write(self.steps, lambda path: path.write_text("\n".join(lines[: last + 1]) + "\n", "utf-8"))

    def add_step_losses(self, losses: list[tuple[int, float]]) -> None:
        """Add steps of the run and their losses to the file."""
        if self._writes:
            lines = "".join(f"{step},{loss}\n" for step, loss in losses)
            append(self.steps, lines.encode(), flush=True)  # before the checkpoint, which counts them as taken


COMMIT_VARIABLE = "KERAS_HIGHWAY_COMMIT"


def environment(strategy) -> dict[str, Any]:
    """Return commit, versions and hardware of a run."""
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
    """Return accelerators, number of cores and processor in words."""
    fields = processor_fields()
    processor = fields.get("model name", "") if fields else platform.processor()
    return ", ".join([*accelerators(), f"{os.cpu_count()} CPU cores, {platform.machine()} {processor}".strip()])


def _commit() -> str | None:
    """Return the commit of this program; without git, that in COMMIT_VARIABLE or the installed version."""
    with contextlib.suppress(OSError):
        if in_checkout():  # elsewhere git would find the repository around a user's environment
            here = {"cwd": Path(__file__).parent, "capture_output": True, "text": True, "check": False}
            head = subprocess.run(["git", "rev-parse", "HEAD"], **here)
            if head.returncode == 0:
                changes = subprocess.run(["git", "diff", "--quiet", "HEAD"], **here)
                return head.stdout.strip() + ("-dirty" if changes.returncode == 1 else "")
    if commit := os.environ.get(COMMIT_VARIABLE):
        return commit
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return None if in_checkout() else f"keras-highway {importlib.metadata.version('keras-highway')}"


def accelerators() -> list[str]:
    """Return the GPUs of this process, as `2 x NAME`."""
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

"""What a run leaves behind.

recipe.json, data.json, environment.json, sessions.json, log.csv, checkpoint.npz,
model.weights.h5, result.json; if requested, steps.csv.
"""

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
from types import MappingProxyType
from typing import Any

import keras
from filelock import FileLock, Timeout

from keras_highway._support.files import append, atomic_write, atomic_write_json, may_pass, read_lines, sweep
from keras_highway._support.fused_ops import processor_fields
from keras_highway._support.schema import Anything, Fields, Items, Table, read_json
from keras_highway.data.vocabulary import VOCABULARY
from keras_highway.training.runs.checkpoint import epochs_of
from keras_highway.weights.info import FILE, ROW
from keras_highway.weights.registry import in_checkout

FINGERPRINT = "fingerprint"  # of what a run is trained on, see `Source`
_MAY_CHANGE = ("commit", "versions", "python", "backend", "hardware", "strategy", "replicas")  # from session to session
_TABLE = Table(Anything())
_BEGUN = ("checkpoint.npz", "log.csv", "result.json", "diverged.json")
_OF_A_RECIPE = {"name", "variant", "weights"}
_WRITTEN = (*_BEGUN, "environment.json", "sessions.json", "data.json", "steps.csv", FILE, ROW)
_SESSIONS = Items(Fields({key: Anything(2) for key in _MAY_CHANGE}))


def defaults_of(recipe) -> dict[str, Any]:
    """Return the fields of a recipe that have a default, with these."""
    return {f.name: f.default for f in dataclasses.fields(recipe) if f.default is not dataclasses.MISSING}


def differences(known: dict, recipe: dict, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields in which a recipe.json differs from a recipe; fields newer than the file have their defaults.

    Args:
        known: What the file holds.
        recipe: The recipe as JSON values.
        defaults: See `defaults_of`.

    Returns:
        The fields that differ, as the file has them; one that only the recipe
        has and that has no default is `None`.
    """
    then, now = (json.loads(json.dumps({**defaults, **fields})) for fields in (known, recipe))
    for fields in (then, now):  # set in whichever order
        if isinstance(fields.get("overrides"), list):
            fields["overrides"] = sorted(fields["overrides"], key=str)
    other = [f for f in {**now, **then} if f not in then or f not in now or then[f] != now[f]]
    return {field: then.get(field) for field in other}


def same_recipe(known: dict, recipe: dict, defaults: Mapping[str, Any]) -> bool:
    """Whether a recipe.json sets what a recipe sets; its `source` is a text. Arguments as in `differences`."""
    return not differences(known, recipe, defaults).keys() - {"source"}


def is_run_of(path: Path, recipe) -> bool:
    """Whether the recipe.json of a run's folder sets what a recipe sets."""
    return same_recipe(read_json(path / "recipe.json", _TABLE), recipe.to_dict(), defaults_of(recipe))


def check_finished(path: Path, recipe) -> None:
    """Raise a ValueError where a folder holds a finished run of another recipe."""
    if not is_run_of(path, recipe):
        raise ValueError(
            f"{path} holds a finished run of another recipe than {recipe.name} as it is set now: see its "
            "recipe.json. Choose another --out, or remove the folder."
        )


def has_whole_result(path: Path) -> bool:
    """Whether a run's folder holds the result of all its epochs.

    That of a run that was ended early stays while the run goes on.
    """
    result = path / "result.json"
    return result.exists() and "of_epochs" not in read_json(result, _TABLE)


def has_begun(path: Path) -> bool:
    """Whether a run's folder holds something that was trained, or diverged."""
    return any((path / name).exists() for name in _BEGUN)


def _recipe_in(path: Path) -> dict[str, Any] | None:
    """Return the recipe of the run in a folder, if any; refuse a folder that holds something else."""
    held = [name for name in _WRITTEN if (path / name).exists()]
    recipe = path / "recipe.json"  # looked for after the others: the chief of several processes writes it first
    if recipe.exists():
        fields = read_json(recipe, _TABLE)
        if fields.keys() >= _OF_A_RECIPE:
            return fields
        raise ValueError(f"{recipe} is not a run's, and training would overwrite it: choose another --out.")
    if held:
        raise ValueError(
            f"{path} holds {', '.join(held)} and no recipe.json: training would overwrite what is not a run, or is one "
            "of a recipe that is not known. Choose another --out, or put the recipe.json of that run back."
        )
    return None


def _told(name: str, value: Any) -> str:
    """Return a fact of the data in a few words."""
    text = ", ".join(value[:20]) + (", ..." if len(value) > 20 else "") if isinstance(value, list) else str(value)
    return f"{name} {(text[:12] if name == FINGERPRINT else text) or 'none'}"


class RunFolder:
    """A run's folder; a run that finds its own recipe there resumes where it stopped.

    Args:
        path: The folder, made if needed.
        recipe: The recipe as JSON values.
        strategy: The run's devices; of several processes, the chief writes.
        defaults: Values of fields that recipe.json may lack, see `defaults_of`.

    Raises:
        ValueError: If the folder holds a run of another recipe, or something
            else than a run.
    """

    def __init__(self, path, recipe: dict, strategy, defaults: Mapping[str, Any] = MappingProxyType({})):
        self.path = Path(path)
        self._writes = strategy.is_chief
        self._lock: FileLock | None = None
        self._environment = environment(strategy)
        self.path.mkdir(parents=True, exist_ok=True)
        recipe = json.loads(json.dumps(recipe))
        known = self.path / "recipe.json"
        before = _recipe_in(self.path)
        other = before is not None and not same_recipe(before, recipe, defaults)
        if other and has_begun(self.path):
            raise ValueError(
                f"{self.path} holds a run of another recipe: see {known}. Choose another --out, or remove the folder."
            )
        if self._writes:
            self._lock = self._locked()
            try:
                self._begin(recipe, other)
            except BaseException:
                self.close()  # a traceback that is kept would keep this object
                raise

    def _begin(self, recipe: dict, other: bool) -> None:
        """Write what a run begins with; `other`: in place of that of another run."""
        if other:  # of a start that was refused, or ended before anything was trained
            for name in ("environment.json", "sessions.json", "data.json", "steps.csv"):
                (self.path / name).unlink(missing_ok=True)
        if self._lock is not None:  # nobody else writes here
            sweep(self.path, own=(*_WRITTEN, "recipe.json", VOCABULARY))
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
            print(  # e.g. Lustre mounted without `flock`, NFS without its lock daemon
                f"{self.path} is on a file system without locks ({error.strerror}): nothing keeps another process from "
                "training there, too.",
                file=sys.stderr,
            )
            return None

    def close(self) -> None:
        """Let another run write here, of this process or of another; a second call does nothing."""
        if self._lock is not None:
            self._lock.release()

    def check_shared(self, strategy) -> None:
        """Refuses processes that do not see each other's files; every process must call it.

        Args:
            strategy: The run's devices.

        Raises:
            ValueError: On all of them, if one does not find what the chief
                wrote.
        """
        if strategy.shard.count == 1:
            return
        number = strategy.total(random.SystemRandom().randrange(2**15))  # the same everywhere, and new
        mark = self.path / f".shared-{number}"
        try:
            if self._writes:
                mark.touch()
            strategy.total(1)  # nobody looks before it is there
            found = strategy.total(int(mark.exists()))
        finally:
            if self._writes:
                mark.unlink(missing_ok=True)
        if found != strategy.replicas:
            raise ValueError(
                f"The processes of this run do not share {self.path}: it must be on a file system that all of them "
                f"see. Received: {found} of {strategy.replicas} replicas find there what the first process wrote"
            )

    def check_data(self, facts: dict[str, Any]) -> None:
        """Write the data of a new run to data.json; compare the data of a resumed run with it.

        Args:
            facts: JSON values: steps of an epoch, names of the classes, the
                fingerprint of the data.

        Raises:
            ValueError: If the run began with other data.
        """
        known, path = {}, self.path / "data.json"
        if not has_begun(self.path):
            if self._writes:
                atomic_write_json(path, facts)
            return
        with contextlib.suppress(FileNotFoundError):
            known = read_json(path, _TABLE)
        for name in sorted(known.keys() & facts.keys(), key=lambda name: (name == FINGERPRINT, name)):
            if known[name] != facts[name]:
                alone = ", of as many steps: others, more or fewer, or in another order" if name == FINGERPRINT else ""
                raise ValueError(
                    f"{self.path} holds a run that was begun with other data: {_told(name, known[name])}, now "
                    f"{_told(name, facts[name])}{alone}. Give the data that it began with, or choose another --out."
                )

    def begin_session(self, step: int) -> None:
        """Note that the run resumes from a step, on what and with which version of this program."""
        if self._writes:
            path = self.path / "sessions.json"
            before = read_json(path, _SESSIONS) if path.exists() else []
            atomic_write_json(path, [*before, {"from_step": step, **self._environment}])

    def environment(self) -> dict:
        """Return commit, versions and hardware as they were when the run began, and what of it changed since."""
        if not self._writes:
            return self._environment
        sessions = read_json(self.path / "sessions.json", _SESSIONS)
        several = {key: list(dict.fromkeys(json.dumps(s[key]) for s in sessions if key in s)) for key in _MAY_CHANGE}
        changed = {f"{key}_changes": [*map(json.loads, values)] for key, values in several.items() if len(values) > 1}
        return {**read_json(self.path / "environment.json", _TABLE), **changed}

    @property
    def checkpoint(self) -> Path:
        """The last state saved."""
        return self.path / "checkpoint.npz"

    @property
    def log(self) -> Path:
        """One line per epoch."""
        return self.path / "log.csv"

    def rows(self) -> list[dict]:
        """Return the epochs logged so far.

        Raises:
            ValueError: If the log is not a table of numbers, or lacks losses.
        """
        rows = read_lines(self.log) if self.log.exists() else []
        missing = [name for name in ("epoch", "train_loss") if any(not row.get(name) for row in rows)]
        if missing:
            raise ValueError(f"{self.log} has no {missing[0]} in some lines: restore the log, or remove the folder.")
        return rows

    def check_state_is_there(self) -> None:
        """Refuses to begin anew in the place of a run whose checkpoint is gone.

        Raises:
            ValueError: If there is a result of whole weights, or a log of more
                epochs than one; a process that is killed after the first has
                logged that, and saved no state.
        """
        result = self.known_result() or {}
        epochs = len(self.rows()) or result.get("epochs")
        if result or (epochs or 0) > 1:
            held = "the result of a run" if epochs is None else f"a run of {epochs} epochs"
            raise ValueError(
                f"{self.path} holds {held} and no {self.checkpoint.name}: to go on, put that "
                "back; to train anew, which would replace log and result, choose another --out, or remove the folder."
            )

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

    @property
    def result(self) -> Path:
        """What was measured at the end."""
        return self.path / "result.json"

    def known_result(self) -> dict | None:
        """Return the result, or None where it or the weights that it is of are missing."""
        whole = self.result.exists() and (self.path / FILE).exists()
        return read_json(self.result, _TABLE) if whole else None

    def final_result(self, epochs: int) -> dict | None:
        """Return the result of a run that is over, after so many epochs; else None."""
        result = self.known_result() if epochs_of(self.checkpoint) == epochs else None
        return result if (result or {}).get("epochs") == epochs else None

    def drop_result(self) -> None:
        """Take away the result of weights that are about to be replaced: where one is, the weights are its own."""
        if self._writes:
            self.result.unlink(missing_ok=True)

    def drop_later_result(self, epoch: int) -> None:
        """Take away a result of more epochs than a run has that goes on, e.g. from its beginning, or of no weights.

        Once it had as many, the result would be taken for that of what was
        trained anew.
        """
        if not self._writes:
            return
        of = (self.known_result() or {}).get("epochs")
        if not isinstance(of, int) or of > epoch:
            self.drop_result()

    @property
    def steps(self) -> Path:
        """One line per step, where requested."""
        return self.path / "steps.csv"

    def cut_step_losses(self, last: int) -> None:
        """Make the file of the steps' losses, or drops from it the steps after `last`, which are taken again.

        Raises:
            ValueError: If it lacks steps before `last`.
        """
        lines = self.steps.read_text("utf-8").splitlines() if self.steps.exists() else ["step,train_loss"]
        whole = itertools.takewhile(lambda row: row[1].startswith(f"{row[0]},"), enumerate(lines[1:], 1))
        known = sum(1 for _ in whole)
        if known < last:  # every process raises it, or the others would wait for the chief
            raise ValueError(
                f"{self.steps} has {known} steps of the {last} that were taken: resume without --log-steps, "
                "or restore the file."
            )
        if not self._writes:
            return
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
    cores = f"{os.cpu_count()} CPU cores, {platform.machine()} {_processor()}".strip()
    return ", ".join([*accelerators(), cores])


def _commit() -> str | None:
    """Return the commit of this program; without git, that in COMMIT_VARIABLE or the installed version."""
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


def _processor() -> str:
    fields = processor_fields()
    return fields.get("model name", "") if fields else platform.processor()

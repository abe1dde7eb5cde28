"""A day of training in short: 100,000 steps of a tiny net under SIGKILL, full disks and clocks that jump.

    python -m tests.endurance [--steps 100000] [--kills 28] [--disks 12] [--seed 0]

One run is left alone. Another one is killed, or finds its disk full, at random
places, and is started again each time; its clocks jump all the while. Both must
end equal, bit for bit, with whole logs. Memory and open files of both are read
from outside, in /proc. A full disk is a limit of the length of files, set from
outside while the process runs: any user may do that.
"""

import argparse
import csv
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from tests.checkpoints import arrays

ROOT = Path(__file__).parents[1]
STEPS_OF_AN_EPOCH = 200
# Two layers of 8 units, one image a step: the test is about everything around a step. Momentum, a moving average, a
# changing rate, crops and mirroring must all come back.
COMMAND = (
    "highway_fc10 --tiny --strategy none --save-steps 70 --log-steps --set net.depth=2 --set train_images=200 "
    "--set batch_size=1 --set ema=0.9 --set crop_padding=2 --set flip=True --set learning_rate=0.0001"
)
TIMES = {"seconds", "images_per_second", "waiting"}
_PAGE = resource.getpagesize() / 2**20
_QUICK_TO_COMPILE = "--xla_backend_optimization_level=0"
_MOST_GROWTH = 4.0  # MiB
_WARM = 0.1  # of a process's time in training: memory of its first steps is not growth


@dataclass
class Session:
    """A process and what was seen of it.

    Attributes:
        process: The process.
        clock: File that has a byte for each jump of its clocks.
        samples: Epochs logged, MiB of memory, open files.
    """

    process: subprocess.Popen
    clock: int
    samples: list[tuple[int, float, int]] = field(default_factory=list)

    def look(self, epochs: int) -> None:
        """Notes memory and open files, unless the process has ended."""
        folder = Path(f"/proc/{self.process.pid}")
        try:
            pages = int((folder / "statm").read_text().split()[1])
            self.samples.append((epochs, pages * _PAGE, len(list((folder / "fd").iterdir()))))
        except OSError:
            return  # it ends just now

    def end(self) -> tuple[int, str, int]:
        """Waits for the end; returns the exit code, what was reported of errors, and how often clocks jumped."""
        error = self.process.communicate()[1].decode()
        os.set_blocking(self.clock, False)
        jumps = 0
        while text := os.read(self.clock, 65536):
            jumps += len(text)
        os.close(self.clock)
        return self.process.returncode, error, jumps


def start(out: Path, epochs: int, seed: str | None) -> Session:
    """Starts a process that trains, with clocks that jump where there is a seed."""
    read, write = os.pipe()
    module = ["keras_highway.training.train"] if seed is None else ["tests.jumping_clocks", seed, str(write)]
    # On JAX a step takes a tenth of TensorFlow's time; what one process has compiled, the others load.
    environment = {**os.environ, "KERAS_BACKEND": "jax", "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment |= {"JAX_COMPILATION_CACHE_DIR": f"{out.parent}/compiled", "XLA_FLAGS": _QUICK_TO_COMPILE}
    environment |= {f"JAX_PERSISTENT_CACHE_MIN_{name}": "0" for name in ("COMPILE_TIME_SECS", "ENTRY_SIZE_BYTES")}
    command = [sys.executable, "-m", *module, *COMMAND.split(), "--set", f"epochs={epochs}", "--out", str(out)]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=[write]
    )
    os.close(write)
    return Session(process, read)


def epochs_logged(out: Path) -> int:
    """Returns how many epochs a run has logged."""
    try:
        return (out / "log.csv").read_text().count("\n") - 1
    except FileNotFoundError:
        return 0


def watch(session: Session, out: Path, target: int, seconds: float = float("inf")) -> None:
    """Looks on until a run has logged so many epochs, one at least of this process, or has ended, or time is up."""
    first, end = epochs_logged(out), time.monotonic() + seconds
    while session.process.poll() is None and time.monotonic() < end:
        time.sleep(0.05)
        epochs = epochs_logged(out)
        if epochs > first:
            session.look(epochs)
        if epochs >= max(target, first + 1):
            return


def fill_disk(process, draw, out: Path) -> None:
    """From now on the process can write no file of more bytes than are drawn, less than a checkpoint has."""
    checkpoint = out / "checkpoint.npz"
    largest = checkpoint.stat().st_size if checkpoint.exists() else 1000
    hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (draw.randrange(largest), hard))


def strike(session, kind, draw, out) -> tuple[int, str, int]:
    """Kills a process, or fills its disk and sees how it ends; returns `Session.end`."""
    time.sleep(draw.random() * 0.1)
    if session.process.poll() is None:
        if kind == "kill":
            session.process.send_signal(signal.SIGKILL)
        else:
            fill_disk(session.process, draw, out)
    code, error, jumps = session.end()
    if kind == "kill":
        assert code == -signal.SIGKILL, f"killed, it ended with {code}: {error[-2000:]}"
    else:
        assert code == 2, f"with its disk full it ended with {code}: {error[-2000:]}"
        errors = [line for line in error.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1 and str(out) in errors[0] and "could not be written" in errors[0], error[-2000:]
        assert "Traceback" not in error, error[-2000:]
    return code, error, jumps


def interrupted(out: Path, epochs: int, kills: int, disks: int, seed: int) -> tuple[list[Session], int, int]:
    """Trains under attack to the end; returns its processes, how many of them never trained, and the clocks' jumps."""
    draw = random.Random(seed)
    kinds = ["kill"] * kills + ["disk"] * disks
    draw.shuffle(kinds)
    places = sorted(draw.randrange(epochs * 19 // 20) for _ in kinds)
    sessions, early, jumps = [], 0, 0
    for number, (kind, place) in enumerate(zip(kinds, places, strict=True)):
        session = start(out, epochs, f"{seed} {number}")
        if number % 10 == 9:  # in the time that it takes to begin
            watch(session, out, place, draw.uniform(0, 6))
            early += not session.samples
        else:
            watch(session, out, place)
        jumps += strike(session, kind, draw, out)[2]
        sessions.append(session)
        print(f"{number + 1:4} {kind}, {epochs_logged(out)} of {epochs} epochs logged", file=sys.stderr, flush=True)
    sessions.append(start(out, epochs, f"{seed} last"))
    watch(sessions[-1], out, epochs)
    code, error, more = sessions[-1].end()
    assert code == 0, error[-2000:]
    return sessions, early, jumps + more


def log(folder: Path) -> list[dict]:
    """Returns the lines of a log without the times."""
    with (folder / "log.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert all(0 < float(row["seconds"]) < float("inf") and 0 <= float(row["waiting"]) <= 1 for row in rows)
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


def files(folder: Path) -> list[str]:
    """Returns the names of a run's files."""
    return sorted(path.name for path in folder.iterdir())


def assert_same_end(cut: Path, whole: Path, epochs: int) -> int:
    """Compares state, logs, result and files of two runs; returns how many values their state has."""
    one, two = arrays(cut / "checkpoint.npz"), arrays(whole / "checkpoint.npz")
    assert list(one) == list(two) and any(name.startswith("average/") for name in one)
    for name, value in two.items():
        np.testing.assert_array_equal(one[name], value, err_msg=name)
    assert [row["epoch"] for row in log(cut)] == [str(i + 1) for i in range(epochs)]
    assert log(cut) == log(whole)
    steps = (cut / "steps.csv").read_bytes()
    assert steps == (whole / "steps.csv").read_bytes() and steps.count(b"\n") == epochs * STEPS_OF_AN_EPOCH + 1
    actual, expected = (json.loads((folder / "result.json").read_text()) for folder in (cut, whole))
    assert {k: v for k, v in actual.items() if k not in TIMES} == {k: v for k, v in expected.items() if k not in TIMES}
    assert files(cut) == files(whole), f"{files(cut)} instead of {files(whole)}"
    return sum(value.size for value in one.values())


def describe(alone: Session) -> list[str]:
    """Returns memory and open files of a process left alone, over its epochs; they must not grow."""
    seen = alone.samples[int(len(alone.samples) * _WARM) :]
    parts = [seen[i * len(seen) // 10 : (i + 1) * len(seen) // 10] or seen[-1:] for i in range(10)]
    rows = [[median(column) for column in zip(*part, strict=True)] for part in parts]
    half = len(seen) // 2  # a file that is open for a moment is not a leak: a leak is open at every look
    grown = rows[-1][1] - rows[0][1]
    opened = min(look[2] for look in seen[half:]) - min(look[2] for look in seen[:half])
    assert grown < _MOST_GROWTH and opened <= 0, f"memory grew by {grown:.1f} MiB, open files by {opened}"
    return [
        f"left alone, {len(seen)} looks: memory grew by {grown:.1f} MiB, open files by {opened:.0f}",
        *(f"  about epoch {row[0]:5.0f}: {row[1]:6.1f} MiB, {row[2]:.0f} open files" for row in rows),
    ]


def day(steps: int, kills: int, disks: int, seed: int, folder: Path) -> list[str]:
    """Trains both runs and compares them; returns what was measured, in lines."""
    epochs, begun = steps // STEPS_OF_AN_EPOCH, time.monotonic()
    cut, whole = folder / "cut", folder / "whole"
    alone = start(whole, epochs, None)
    watch(alone, whole, epochs)
    code, error, _ = alone.end()
    assert code == 0, error[-2000:]
    took = time.monotonic() - begun
    sessions, early, jumps = interrupted(cut, epochs, kills, disks, seed)
    values = assert_same_end(cut, whole, epochs)
    ends = [session.samples[-1] for session in sessions if session.samples]
    sizes, counts = ([min(column), max(column)] for column in list(zip(*ends, strict=True))[1:])
    return [
        f"{steps} steps in {epochs} epochs, seed {seed}",
        f"left alone {took:.0f} s, under attack {time.monotonic() - begun - took:.0f} s",
        f"{kills} SIGKILL and {disks} full disks, {early} of them before a step was taken; {jumps} jumps of clocks",
        f"end: {values} numbers bit-identical; {epochs} lines of the log and {steps} losses of steps equal, in order",
        *describe(alone),
        f"under attack, at the ends of {len(ends)} processes: {sizes[0]:.1f} to {sizes[1]:.1f} MiB, "
        f"{counts[0]} to {counts[1]} open files",
    ]


def main(argv=None) -> None:
    """Reads the command line and prints what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("steps", 100_000), ("kills", 28), ("disks", 12), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        print("\n".join(day(args.steps, args.kills, args.disks, args.seed, Path(folder))))


if __name__ == "__main__":
    main()

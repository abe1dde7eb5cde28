"""A day of training in short: 100,000 steps of a tiny net under SIGKILL, full disks and clocks that jump.

    python -m tests.endurance [--steps 100000] [--kills 60] [--disks 30] [--seed 0]

One run is left alone. Another one is killed, or finds its disk full, at random
places, and is started again each time; its clocks jump all the while. Its end
must be that of the first, bit for bit, its log whole. Memory and open files of
both are read from outside, in /proc. A full disk is a limit of the length of
files, set from outside while the process runs: any user may do that.
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
# Two layers of 8 units, one image a step: what is tried is what happens around a step. Momentum, a moving average, a
# changing rate, crops and mirroring must all come back.
COMMAND = (
    "highway_fc10 --tiny --strategy none --save-steps 70 --log-steps --set net.depth=2 --set train_images=200 "
    "--set batch_size=1 --set ema=0.9 --set crop_padding=2 --set flip=True --set learning_rate=0.0001"
)
TIMES = {"seconds", "images_per_second", "waiting"}
_PAGE = resource.getpagesize() / 2**20
_WARM = 0.1  # of a process's time in training: what it takes in its first steps is no growth


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
        """Waits for the end; returns the exit code, what was said of errors, and how often clocks jumped."""
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
    environment = {"XLA_FLAGS": "--xla_backend_optimization_level=0", **os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment["KERAS_BACKEND"] = "jax"  # a step takes a tenth of TensorFlow's time
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
        told = [line for line in error.splitlines() if line.startswith("error: ")]
        assert len(told) == 1 and str(out) in told[0] and "could not be written" in told[0], error[-2000:]
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
    mine, its = (json.loads((folder / "result.json").read_text()) for folder in (cut, whole))
    assert {k: v for k, v in mine.items() if k not in TIMES} == {k: v for k, v in its.items() if k not in TIMES}
    assert files(cut) == files(whole)
    return sum(value.size for value in one.values())


def growth(session: Session) -> tuple[float, float, int]:
    """Returns MiB of memory after the first tenth of what was seen of a process, how it grew, and how its files did."""
    seen = session.samples[int(len(session.samples) * _WARM) :]
    tenth = max(1, len(seen) // 10)
    first, last = seen[:tenth], seen[-tenth:]
    memory = [median(sample[1] for sample in part) for part in (first, last)]
    opened = [median(sample[2] for sample in part) for part in (first, last)]
    return memory[0], memory[1] - memory[0], round(opened[1] - opened[0])


def main(argv=None) -> None:
    """Trains both runs, compares them and prints what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("steps", 100_000), ("kills", 60), ("disks", 30), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args(argv)
    epochs = args.steps // STEPS_OF_AN_EPOCH
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        cut, whole = Path(folder, "cut"), Path(folder, "whole")
        alone = start(whole, epochs, None)
        watch(alone, whole, epochs)
        code, error, _ = alone.end()
        assert code == 0, error[-2000:]
        took = time.monotonic() - begun
        sessions, early, jumps = interrupted(cut, epochs, args.kills, args.disks, args.seed)
        values = assert_same_end(cut, whole, epochs)
    print(f"{epochs * STEPS_OF_AN_EPOCH} steps, {epochs} epochs; seed {args.seed}")
    print(f"left alone: {took:.0f} s; under attack: {time.monotonic() - begun - took:.0f} s")
    print(f"{args.kills} SIGKILL, {args.disks} full disks, {early} of them before the first step; {jumps} clock jumps")
    print(f"end: {values} values of the state bit-identical, {epochs} lines of the log and every step's loss equal")
    memory, grown, opened = growth(alone)
    print(f"left alone: {memory:.0f} MiB, growth {grown:+.1f} MiB; open files {opened:+}; {len(alone.samples)} samples")
    ends = [session.samples[-1] for session in sessions if session.samples]
    sizes, counts = [f"{min(c)} to {max(c)}" for c in zip(*[(round(s[1]), s[2]) for s in ends], strict=True)]
    print(f"under attack: at the ends of {len(ends)} processes {sizes} MiB, {counts} open files")


if __name__ == "__main__":
    main()

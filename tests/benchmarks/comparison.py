"""Two things timed side by side: A B A B ..., and the ratio of each pair.

A busy machine slows both of a pair alike, so the median of the pairs' ratios
tells what two medians taken one after the other cannot.
"""

import json
import math
import os
import platform
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import keras
import pytest

from keras_highway._support.fused_ops import processor_fields

RESULTS = Path(__file__).with_name("results.json")
TOO_NOISY = 0.1


@dataclass(frozen=True)
class Ratio:
    """Paired times of a subject, divided by a reference's.

    Attributes:
        ratio: Median of the pairs' ratios.
        quartiles: Their first and third quartile.
        margin: Half the 95 % interval of the median, from the quartiles.
        subject_seconds: Median of the subject.
        reference_seconds: Median of the reference.
    """

    ratio: float
    quartiles: tuple[float, float]
    margin: float
    subject_seconds: float
    reference_seconds: float


@dataclass(frozen=True)
class Comparison:
    """What `compare` measured.

    Attributes:
        name: Title of the comparison.
        n: Number of pairs.
        wall: By the clock on the wall.
        cpu: By the processor time of all threads: the work done, which other
            processes disturb far less. It does not include a GPU's.
    """

    name: str
    n: int
    wall: Ratio
    cpu: Ratio

    @property
    def judged(self) -> Ratio:
        """Processor times where the work is the processor's, else the clock's."""
        return self.cpu if device() == "cpu" else self.wall

    def check_at_most(self, limit: float) -> None:
        """Fails where the ratio is above the limit by more than its margin, or the margin is too wide."""
        assert self.judged.margin <= TOO_NOISY, f"the machine is too busy to tell: {self}"
        assert self.judged.ratio - self.judged.margin <= limit, f"slower than {limit}: {self}"

    def check_goal(self, limit: float) -> None:
        """Says where a goal is missed, as a failure that is expected: unlike a limit, it has not been met before."""
        if self.judged.ratio > limit:
            pytest.xfail(f"the goal of {limit} is missed: {self.judged.ratio:.3f}, {processor()}")


def compare(benchmark, name, subject, reference, rounds=25, reference_clock=time.process_time) -> Comparison:
    """Time two functions in turn, in `rounds` pairs after two to warm up; write the `Comparison` to `results.json`.

    `reference_clock` returns the processor seconds of the reference, which may run in another process.
    """
    wall: tuple[list, list] = ([], [])
    cpu: tuple[list, list] = ([], [])

    clocks = (time.process_time, reference_clock)

    def timed(side, function):
        start, start_cpu = time.perf_counter(), clocks[side]()
        function()
        wall[side].append(time.perf_counter() - start)
        cpu[side].append(clocks[side]() - start_cpu)

    benchmark.pedantic(
        timed, args=(0, subject), setup=lambda: timed(1, reference), rounds=rounds, warmup_rounds=2, iterations=1
    )
    result = Comparison(
        name, rounds, *(ratio(subject[-rounds:], reference[-rounds:]) for subject, reference in (wall, cpu))
    )
    benchmark.extra_info.update(asdict(result))
    record(**asdict(result))
    return result


def ratio(subject, reference) -> Ratio:
    """The `Ratio` of paired times."""
    ratios = [a / b for a, b in zip(subject, reference, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    return Ratio(
        ratio=statistics.median(ratios),
        quartiles=(low, high),
        # In a normal sample, the median's standard error is 1.253 sigma / sqrt(n), the quartiles are 1.349 sigma apart.
        margin=1.96 * 1.253 / 1.349 * (high - low) / math.sqrt(len(ratios)),
        subject_seconds=statistics.median(subject),
        reference_seconds=statistics.median(reference),
    )


def record(name, **figures) -> None:
    """Writes a measurement to `results.json`, in the place of an older one of that name, backend and device."""
    key = f"{name} [{keras.backend.backend()}, {device()}]"
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[key] = {
        **_rounded({**figures, "name": name}),
        "backend": keras.backend.backend(),
        "hardware": f"{processor()}, {os.cpu_count()} cores, {device()}",
        "load": round(os.getloadavg()[0], 1),
        "keras": keras.__version__,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }
    RESULTS.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")


def _rounded(value):
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(v) for v in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def device() -> str:
    """The kind of the first device: `"cpu"`, `"gpu"` or `"tpu"`."""
    if keras.backend.backend() == "numpy":  # which keras.distribution does not know
        return "cpu"
    return keras.distribution.list_devices()[0].split(":")[0]


def processor() -> str:
    """Its name and, of an x86 processor, whether it has the matrix unit that makes bfloat16 fast."""
    fields = processor_fields()
    name = fields.get("model name") or platform.processor() or platform.machine()
    if "flags" not in fields:
        return name
    return f"{name} {'with' if 'amx_bf16' in fields['flags'] else 'without'} AMX"

"""Tables of docs/ that are made of what the benchmarks measured, `tests/benchmarks/results.json`."""

import json
import math
from pathlib import Path

from keras_highway.tasks import IMAGES

RESULTS = Path(__file__).resolve().parents[2] / "tests" / "benchmarks" / "results.json"


def speed_table(path: Path = RESULTS) -> str:
    """Return the ratios of the benchmarks: processor time on a CPU, which other processes disturb least."""
    lines = ["| subject / reference | ratio | quartiles | pairs | on |", "|---|---|---|---|---|"]
    for row in _read(path).values():
        if "wall" not in row:
            continue
        judged = _judged(row)
        low, high = judged["quartiles"]
        lines.append(
            f"| {row['name']} | {judged['ratio']:.2f} | {low:.2f} to {high:.2f} | {row['n']} "
            f"| {row['backend']}, {row['hardware']} |"
        )
    return "\n".join([*lines, "", "Each pair ran side by side in one process; on a CPU, processor seconds."])


def steps_against_keras_table(path: Path = RESULTS) -> str:
    """Training steps beside keras.applications' ResNet50, in both precisions."""
    lines = [
        "| processor time of a training step / keras.applications' ResNet50 | products in float32 | in bfloat16 |",
        "|---|---|---|",
    ]
    rows, made = _read(path), []
    for variant in ("resnet50", "highway50"):
        for batch, size in ((32, 128), (4, 224)):
            title = f"{variant} / keras.applications.ResNet50, train, {batch} of {size} px"
            cells = [rows[f"{title}, {precision} [tensorflow, cpu]"] for precision in ("float32", "mixed_bfloat16")]
            float32, bfloat16 = (_judged(row)["ratio"] for row in cells)
            made += cells
            lines.append(f"| `{variant}`, {batch} images of {size} x {size} | {float32:.2f} | {bfloat16:.2f} |")
    note = f"Below 1 is faster. Medians of {_one({row['n'] for row in made})} pairs of steps. {_hardware(made)}."
    return "\n".join([*lines, "", note])


def depth_table(path: Path = RESULTS) -> str:
    """Processor seconds of the scanned fully connected net, by depth."""
    lines = ["| layers | backend | build and compile, s | first step, s | step, s |", "|---|---|---|---|---|"]
    for row in _read(path).values():
        if row["name"] == "highway_fc, build, first step and step":
            for depth in sorted((key for key in row if key.isdigit()), key=int):
                seconds = " | ".join(f"{row[depth][part][1]:.2f}" for part in ("build", "first_step", "step"))
                lines.append(f"| {depth} | {row['backend']} | {seconds} |")
    return "\n".join(lines)


def host_pipeline_table(path: Path = RESULTS) -> str:
    """Images a second of one core that the host makes for ImageNet, beside timm's loader."""
    cases = {"plain": "crop and mirroring", "RandAugment": "with RandAugment m7"}
    cases["RandAugment, 3 copies"] = "with RandAugment, three copies of an image (A2)"
    lines = ["| | images/s a core | timm | ratio | cores for 3,000 images/s |", "|---|---|---|---|---|"]
    rows = _read(path)
    made = {case: rows[f"host pipeline, 224 px, {case}, images/s of a core [tensorflow, cpu]"] for case in cases}
    for case, row in made.items():
        ours, timm = max(row["ours"]), max(row["timm"])
        lines.append(f"| {cases[case]} | {ours:.0f} | {timm:.0f} | {ours / timm:.2f} | {math.ceil(3000 / ours)} |")
    (images,), (size,) = ({row[key] for row in made.values()} for key in ("images", "mean_bytes"))
    rounds = _one({len(row["ours"]) for row in made.values()})
    note = f"Best of {rounds} rounds in turn on one core; {images} JPEGs of {size / 1e3:.0f} kB on average"
    return "\n".join([*lines, "", f"{note}. {_hardware(list(made.values()))}."])


def int8_table(path: Path = RESULTS) -> str:
    """Return a LiteRT file of 8-bit whole numbers beside one of float32."""
    lines = ["| | test accuracy | bytes | images per second of processor time |", "|---|---|---|---|"]
    rows = _read(path)
    file = rows["mnist10_w32.tvdn, LiteRT [tensorflow, cpu]"]
    speed = rows["mnist10_w32.tvdn, LiteRT, int8 / float32, batch 100 [tensorflow, cpu]"]
    for kind, side in (("float32", "reference"), ("int8", "subject")):
        rate = 100 / _judged(speed)[f"{side}_seconds"]
        accuracy = IMAGES.metric.format(file["accuracy"][kind])
        lines.append(f"| {kind} | {accuracy} | {file['bytes'][kind]:,} | {rate:,.0f} |")
    return "\n".join([*lines, "", f"Medians of {speed['n']} pairs, one thread, {_hardware([file, speed])}."])


def remat_table(path: Path = RESULTS) -> str:
    """Peak memory and time of training steps with `remat` beside those without."""
    lines = ["| variant, batch | MiB | with remat | ratio | time, ratio |", "|---|---|---|---|---|"]
    rows, made = _read(path), []
    for variant, batch in (("highway110", 128), ("highway50", 8)):
        peak = rows[f"{variant}, remat, peak of two steps, MiB [tensorflow, cpu]"]
        time = rows[f"{variant}: remat / without, train [tensorflow, cpu]"]
        made += [peak, time]
        lines.append(
            f"| `{variant}`, {batch} | {peak['without']:,.0f} | {peak['remat']:,.0f} "
            f"| {peak['remat'] / peak['without']:.2f} | {_judged(time)['ratio']:.2f} |"
        )
    pairs = _one({row["n"] for row in made if "n" in row})
    note = f"Memory n = 1; time, medians of {pairs} pairs of steps, processor seconds. {_hardware(made)}."
    return "\n".join([*lines, "", note])


def _read(path) -> dict:
    return json.loads(path.read_text("utf-8"))


def _hardware(rows) -> str:
    return _one({row["hardware"] for row in rows})


def _one(values):
    if len(values) != 1:
        raise ValueError(f"A table's numbers must be made alike: measure all of them again. Received: {sorted(values)}")
    return values.pop()


def _judged(row) -> dict:
    return row["cpu" if row["hardware"].endswith("cpu") else "wall"]

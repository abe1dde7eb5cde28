"""`python -m zoo.release.tables [--check]`: writes every file that is made from the results in `zoo/`.

These are zoo/results.csv, docs/results.md and .csv, docs/claims.md, the
weights in NOTICE, the curves in docs/results, and the tables of README and
docs/, which stand between `<!-- table:NAME -->` and `<!-- end:NAME -->`. With
`--check` nothing is written, and a difference is an error.
"""

import argparse
import math
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from keras_highway._support.files import atomic_write, read_log
from keras_highway.analysis import StageCost
from keras_highway.cli.listing import parameters
from keras_highway.specs import override
from keras_highway.tasks import IMAGES, LANGUAGE, format_metric, format_validation, task_of
from keras_highway.training.recipes.charlm import PUBLISHED_PERPLEXITIES
from keras_highway.variants import VARIANTS, task_of_variant
from keras_highway.weights import registry
from keras_highway.weights.info import WeightsInfo, format_epochs
from keras_highway.weights.registry import COLUMNS, RESULTS, WEIGHTS, list_weights, of_row
from training import analysis_tables, head, read_json, search
from zoo.release import claims, results, studies
from zoo.release.results import command_of, cost_of, published

ROOT = Path(__file__).resolve().parents[2]
ZOO = ROOT / "zoo" / "weights"
SPEED = ROOT / "zoo" / "speed.json"
BENCHMARKS = ROOT / "tests" / "benchmarks" / "results.json"


def all_results(zoo: Path = ZOO) -> dict[str, dict]:
    """Return every result of the zoo by weights name."""
    return {path.parent.name: read_json(path) for path in sorted(zoo.glob("[!.]*/result.json"))}


def weights_table(zoo: Path = ZOO) -> str:
    """Return the trained weights of image nets and what was measured of them."""
    lines = head("| weights | test accuracy (last epoch) | published, %: best (mean) | epochs | recipe |")
    images = {name: result for name, result in all_results(zoo).items() if task_of(result) is IMAGES}
    tables = [table for table in published() if table["metric"] in ("accuracy, %", "top-1 accuracy, %")]
    printed = {row["weights"]: row["published"] for table in tables for row in table["rows"] if "weights" in row}
    for name, result in images.items():
        lines.append(
            f"| `{name}` | {format_metric(result)} | {printed.get(name, '-')} | {format_epochs(result)} "
            f"| `{WEIGHTS[name].recipe}` |"
        )
    return "\n".join([*lines, "", _trained_on(images)])


def language_table(zoo: Path = ZOO) -> str:
    """Return the trained weights of language models."""
    lines = head("| weights | test perplexity (last epoch) | published | validation | epochs | products in |")
    models = {name: result for name, result in all_results(zoo).items() if task_of(result) is LANGUAGE}
    for name, result in models.items():
        products = result.get("precision", "float32").removeprefix("mixed_")
        lines.append(
            f"| `{name}` | {format_metric(result)} | {PUBLISHED_PERPLEXITIES.get(result['variant'], '-')} "
            f"| {format_validation(result)} | {format_epochs(result)} | {products} |"
        )
    return "\n".join([*lines, "", _trained_on(models)])


_CHOSEN = (
    "mnist10_w16.tvdn", "mnist10_w32.tvdn", "highway_fc50_tanh.tvdn", "resnet20.blog", "highway20.blog",
    "cifar100_19layer.fast", "resnet50.imagenette", "highway50.imagenette", "charlm_small_coupled.ptb",
    "charlm_large_coupled.ptb",
)  # fmt: skip
_DATA = {
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "ptb": "Penn Treebank",
    "imagenette": "Imagenette",
}


def chosen_table() -> str:
    """Return the ten weights that the README recommends, with their sizes."""
    sizes, measured = {row["name"]: row for row in list_weights(details=True)}, all_results()
    lines = head("| weights | trained on | input | parameters | file | test result | in wheel |")
    for name in _CHOSEN:
        row, result, transform = sizes[name], measured[name], WEIGHTS[name].transform
        wheel = read_json(ZOO / name / "weights.json")["wheel"]
        shape = "words" if transform is None else " x ".join(str(n) for n in (*transform.size, transform.channels))
        metric = "perplexity " if task_of(result) is LANGUAGE else ""
        lines.append(
            f"| `{name}` | {_DATA[row['data']]} | {shape} | {row['parameters']:,} | {row['bytes'] / 1e6:.1f} MB "
            f"| {metric}{format_metric(result)} | {'yes' if wheel else 'no'} |"
        )
    return "\n".join(lines)


def _trained_on(measured) -> str:
    hardware = sorted({one for result in measured.values() for one in result.get("hardware", "unknown").split("; ")})
    return f"Trained on {'; '.join(hardware)}. Logs: `zoo/weights/*/log.csv`."


def variants_table() -> str:
    """Return the variants whose published architecture is known in full, and the count that its source prints."""
    lines = head("| variant | gating | trainable parameters | as printed | source |")
    for spec in VARIANTS.values():
        if spec.published_parameters:
            lines.append(
                f"| `{spec.name}` | {spec.gating} | {spec.published_parameters:,} "
                f"| {spec.printed_parameters or '-'} | {spec.source} |"
            )
    exact = [s.name for s in VARIANTS.values() if s.printed_parameters == f"{s.published_parameters or 0:,}"]
    note = (
        f"The authors' log has the exact count of {', '.join(f'`{name}`' for name in exact)}. The other counts follow "
        "from the published architecture and agree with the published ones up to rounding or truncation."
    )
    return "\n".join([*lines, "", note])


def steps_table(folder: Path = ROOT / "zoo" / "runs" / "cpu_steps") -> str:
    """Run of some steps on a CPU, which show that a recipe works and are not results."""
    lines = head("| recipe | steps | training loss, first to last epoch | images/s | images | products in |")
    hardware = set()
    for path in sorted(folder.glob("*/recipe.json")):
        recipe = read_json(path)
        rows = read_log(path.with_name("log.csv"))
        losses = [row["train_loss"] for row in rows]
        speed = statistics.median(row["images_per_second"] for row in rows)
        environment = read_json(path.with_name("environment.json"))
        hardware.add(f"{environment['backend']}, {environment['hardware']}")
        lines.append(
            f"| `{recipe['name']}` | {rows[-1]['step']:.0f} | {len(rows)} | {losses[0]:.3f} to {losses[-1]:.3f} "
            f"| {speed:.0f} | {recipe['train_images']:,} | {recipe['precision'].removeprefix('mixed_')} |"
        )
    return "\n".join([*lines, "", f"n = 1 run each, on one core of a shared machine: {'; '.join(sorted(hardware))}."])


def figure1_table(path: Path = ROOT / "zoo" / "searches" / "figure1" / "result.json") -> str:
    """Return the random search of [TVDN, Figure 1] over plain and highway nets of 10 to 100 layers."""
    result = read_json(path)
    first, *others = result["rungs"]
    extent = f"{first['runs']} runs of {first['epochs']} epochs"
    extent += "".join(f", the best {rung['runs']} of them on to {rung['epochs']}" for rung in others)
    where = f"{result['backend']}, {result['hardware']}, commit `{result['commit']}`"
    note = f"A cell: {extent}; n = 1 seed a run. {where}."
    return f"{search.table(result)}\n\n{_plain_over_highway(result['cells'])}\n{note}"


def _plain_over_highway(cells) -> str:
    """Return the best loss of each plain net over that of the highway net of as many layers."""
    ratios = []
    for cell, row in cells.items():
        other = cells.get(cell.replace("plain_", "highway_"), {})
        if cell.startswith("plain_") and "best_loss" in row and "best_loss" in other:
            ratio = row["best_loss"] / other["best_loss"]
            ratios.append(f"{ratio:,.{0 if ratio >= 10 else 1}f} at {search.depth_of(cell)} layers")
    return f"The plain net's best loss is the highway net's times {', '.join(ratios)}."


def bring_up_to_date(path: Path, text: str, check: bool) -> int:
    """Write a file if its text differs, or report the difference."""
    if path.exists() and path.read_text("utf-8") == text:
        return 0
    if check:
        print(f"{path} differs from the results: run python -m zoo.release.tables", file=sys.stderr)
        return 1
    atomic_write(path, lambda partial: partial.write_text(text, "utf-8"))
    return 0


_START = "of it only what is named below is part of the wheel:\n\n"
_END = "\n\nkeras_highway/data/"


def notice(text: str, zoo: Path = ZOO) -> str:
    """Return a NOTICE with an updated list of weights."""
    by_licence = defaultdict(list)
    for path in sorted(zoo.glob("[!.]*/weights.json")):
        row = read_json(path)
        if row["wheel"]:
            by_licence[row["data_licence"]].append(row["name"])
    before, start, rest = text.partition(_START)
    _, end, after = rest.partition(_END)
    if not start or not end:
        raise ValueError(f"NOTICE must hold the lines {_START.strip()!r} and {_END.strip()!r}.")
    listed = (f"{', '.join(names)}\n    {licence}" for licence, names in by_licence.items())
    return before + start + "\n".join(listed) + end + after


def metric_rows() -> list[dict[str, Any]]:
    """Return a row for each weight of the registry, by name, under `COLUMNS`; a folder of a user's zoo has none."""
    speed = read_json(SPEED)["images_per_second"] if SPEED.exists() else {}
    users = registry.users_names()
    return [_row(row, speed) for name, row in sorted(registry.WEIGHTS.items()) if name not in users]


def _row(row: WeightsInfo, speed) -> dict[str, Any]:
    file = ZOO / row.name / row.file
    ours = (ZOO / row.name).is_dir()
    cost = _cost(row) if task_of_variant(row.variant) is IMAGES else None
    # Speed is of the variants as they are; other classes change it by next to nothing.
    timed = not row.overrides and not row.removed and not _size(row)
    return {
        **of_row(row),
        "parameters": cost.parameters if cost else parameters()[row.variant],
        "multiply_adds": cost.multiply_adds if cost else None,
        "bytes": file.stat().st_size if file.is_file() else None,
        "cpu_images_per_second": speed.get(row.variant, {}).get("median") if timed else None,
        "command": command_of(ZOO / row.name) if ours else None,
    }


def _cost(row: WeightsInfo) -> StageCost:
    """Return the cost of weights: size, classes, overrides of the variant and removed blocks."""
    spec = override(VARIANTS[row.variant], **row.overrides)
    return cost_of(spec, _size(row), len(row.classes) or None, row.removed)


def _size(row: WeightsInfo) -> int | None:
    """Height and width of the images of weights; None where they are their variant's."""
    own = task_of_variant(row.variant) is IMAGES and row.images.size != VARIANTS[row.variant].input_shape[:2]
    return row.images.size[0] if own else None


def speed_table(path: Path = BENCHMARKS) -> str:
    """Return the ratios of the benchmarks: processor time on a CPU, which other processes disturb least."""
    lines = head("| subject / reference | ratio | quartiles | pairs | on |")
    for row in read_json(path).values():
        if "wall" not in row:
            continue
        judged = _judged(row)
        low, high = judged["quartiles"]
        lines.append(
            f"| {row['name']} | {judged['ratio']:.2f} | {low:.2f} to {high:.2f} | {row['n']} "
            f"| {row['backend']}, {row['hardware']} |"
        )
    return "\n".join([*lines, "", "Each pair ran side by side in one process; on a CPU, processor seconds."])


def steps_against_keras_table(path: Path = BENCHMARKS) -> str:
    """Training steps beside keras.applications' ResNet50, in both precisions."""
    lines = head(
        "| processor time of a training step / keras.applications' ResNet50 | products in float32 | in bfloat16 |"
    )
    rows, made = read_json(path), []
    for variant in ("resnet50", "highway50"):
        for batch, size in ((32, 128), (4, 224)):
            title = f"{variant} / keras.applications.ResNet50, train, {batch} of {size} px"
            cells = [rows[f"{title}, {precision} [tensorflow, cpu]"] for precision in ("float32", "mixed_bfloat16")]
            float32, bfloat16 = (_judged(row)["ratio"] for row in cells)
            made += cells
            lines.append(f"| `{variant}`, {batch} images of {size} x {size} | {float32:.2f} | {bfloat16:.2f} |")
    note = f"Below 1 is faster. Medians of {_one({row['n'] for row in made})} pairs of steps. {_hardware(made)}."
    return "\n".join([*lines, "", note])


def depth_table(path: Path = BENCHMARKS) -> str:
    """Processor seconds of the scanned fully connected net, by depth."""
    lines = head("| layers | backend | build and compile, s | first step, s | step, s |")
    for row in read_json(path).values():
        if row["name"] == "highway_fc, build, first step and step":
            for depth in sorted((key for key in row if key.isdigit()), key=int):
                seconds = " | ".join(f"{row[depth][part][1]:.2f}" for part in ("build", "first_step", "step"))
                lines.append(f"| {depth} | {row['backend']} | {seconds} |")
    return "\n".join(lines)


def host_pipeline_table(path: Path = BENCHMARKS) -> str:
    """Images a second of one core that the host makes for ImageNet, beside timm's loader."""
    cases = {"plain": "crop and mirroring", "RandAugment": "with RandAugment m7"}
    cases["RandAugment, 3 copies"] = "with RandAugment, three copies of an image (A2)"
    lines = head("| | images/s a core | timm | ratio | cores for 3,000 images/s |")
    rows = read_json(path)
    made = {case: rows[f"host pipeline, 224 px, {case}, images/s of a core [tensorflow, cpu]"] for case in cases}
    for case, row in made.items():
        ours, timm = max(row["ours"]), max(row["timm"])
        lines.append(f"| {cases[case]} | {ours:.0f} | {timm:.0f} | {ours / timm:.2f} | {math.ceil(3000 / ours)} |")
    (images,), (size,) = ({row[key] for row in made.values()} for key in ("images", "mean_bytes"))
    rounds = _one({len(row["ours"]) for row in made.values()})
    note = f"Best of {rounds} rounds in turn on one core; {images} JPEGs of {size / 1e3:.0f} kB on average"
    return "\n".join([*lines, "", f"{note}. {_hardware(list(made.values()))}."])


def int8_table(path: Path = BENCHMARKS) -> str:
    """Return a LiteRT file of 8-bit whole numbers beside one of float32."""
    lines = head("| | test accuracy | bytes | images per second of processor time |")
    rows = read_json(path)
    file = rows["mnist10_w32.tvdn, LiteRT [tensorflow, cpu]"]
    speed = rows["mnist10_w32.tvdn, LiteRT, int8 / float32, batch 100 [tensorflow, cpu]"]
    for kind, side in (("float32", "reference"), ("int8", "subject")):
        rate = 100 / _judged(speed)[f"{side}_seconds"]
        accuracy = IMAGES.metric.format(file["accuracy"][kind])
        lines.append(f"| {kind} | {accuracy} | {file['bytes'][kind]:,} | {rate:,.0f} |")
    return "\n".join([*lines, "", f"Medians of {speed['n']} pairs, one thread, {_hardware([file, speed])}."])


def remat_table(path: Path = BENCHMARKS) -> str:
    """Peak memory and time of training steps with `remat` beside those without."""
    lines = head("| variant, batch | MiB | with remat | ratio | time, ratio |")
    rows, made = read_json(path), []
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


def _hardware(rows) -> str:
    return _one({row["hardware"] for row in rows})


def _one(values):
    if len(values) != 1:
        raise ValueError(f"A table's numbers must be made alike: measure all of them again. Received: {sorted(values)}")
    return values.pop()


def _judged(row) -> dict:
    return row["cpu" if row["hardware"].endswith("cpu") else "wall"]


TABLES: dict[str, Callable[[], str]] = {
    "chosen": chosen_table,
    "weights": weights_table,
    "language": language_table,
    "variants": variants_table,
    "designs": studies.designs_table,
    "a3_losses": studies.a3_losses_table,
    "speed": speed_table,
    "steps_against_keras": steps_against_keras_table,
    "depth": depth_table,
    "host_pipeline": host_pipeline_table,
    "int8": int8_table,
    "remat": remat_table,
    "figure1": figure1_table,
    "figure4": analysis_tables.figure4_table,
    "trim": analysis_tables.trim_table,
    "steps": steps_table,
}


def render(text: str) -> str:
    """Return a text with every marked table updated."""

    def table(match):
        name = match[1]
        if name not in TABLES:
            raise ValueError(f"Unknown table {name!r}; known: {', '.join(TABLES)}.")
        return f"<!-- table:{name} -->\n{TABLES[name]()}\n<!-- end:{name} -->"

    new, count = re.subn(r"<!-- table:(\w+) -->\n.*?<!-- end:\1 -->", table, text, flags=re.S)
    if {text.count("<!-- table:"), text.count("<!-- end:")} != {count}:
        raise ValueError("A table has a start or an end alone: <!-- table:NAME --> ... <!-- end:NAME -->.")
    return new


def _rendered(page: Path) -> str:
    try:
        return render(page.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{page}: {error}") from error


def pages(root: Path = ROOT) -> list[Path]:
    """Return the files that have marked tables: the README and pages of `docs/`."""
    candidates = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return [path for path in candidates if "<!-- table:" in path.read_text("utf-8")]


def generated(chosen: Sequence[Path] = ()) -> dict[Path, str]:
    """Return the text of every generated file, or of some pages alone."""
    if chosen:
        return {page: _rendered(page) for page in chosen}
    return {
        ROOT / "zoo" / RESULTS: results.as_csv(metric_rows(), COLUMNS),
        results.DOCS / "results.csv": results.as_csv(results.rows()),
        results.DOCS / "results.md": results.as_markdown(results.rows()),
        results.DOCS / "claims.md": claims.page(),
        ROOT / "NOTICE": notice((ROOT / "NOTICE").read_text("utf-8")),
        **{page: _rendered(page) for page in pages()},
    }


def main(argv=None) -> int:
    """Parse the command line; returns 1 where a file differs from the results."""
    parser = argparse.ArgumentParser(prog="python -m zoo.release.tables", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    parser.add_argument("pages", nargs="*", type=Path, help="Markdown files (default: all generated files)")
    args = parser.parse_args(argv)
    if not args.check and not args.pages:
        studies.draw()
        results.draw_first_epochs()
    try:
        return max(bring_up_to_date(path, text, args.check) for path, text in generated(args.pages).items())
    except (ValueError, OSError) as error:
        parser.exit(2, f"error: {error}\n")


if __name__ == "__main__":
    sys.exit(main())

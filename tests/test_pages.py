"""README and docs/: every command parses, every snippet runs, every public name has its place in the reference."""

import ast
import importlib
import json
import re
import runpy
import shutil
from collections import Counter
from pathlib import Path

import keras
import numpy as np
import pytest
from pages import DOORS, PACKAGES, PAGES, ROOT, Snippet, commands, parsed, snippets
from PIL import Image
from test_zoo import write_corpus

import keras_highway as kh
from keras_highway._support.files import read_log
from keras_highway._support.keras_models import without_values
from keras_highway.analysis.cost import cost
from keras_highway.applications import create_model
from keras_highway.training.data.samples import epoch_samples
from keras_highway.training.recipes import RECIPES
from keras_highway.training.train import choose

REFERENCE = sorted((ROOT / "docs" / "reference").glob("*.md"))
SNIPPETS = snippets()
NOT_PLAIN = (
    r"\b(?:anew|beside|whichever|mend(?:s|ed|ing)?|kin|hinder|thereof|nobody)\b"
    r"|\b(?:that of|those of|is what|what it|the like|none is)\b"
    r"|(?:^|[.:] )(?:What|Which|Who|How|Where|Of) [a-z].*"
)


COMMANDS = [(path.name, argv) for path in PAGES for argv in commands(path)]


def name_of(snippet: Snippet) -> str:
    return f"{snippet.page}:{snippet.number}"


@pytest.mark.parametrize("argv", [argv for _, argv in COMMANDS], ids=[f"{page}:{' '.join(c)}" for page, c in COMMANDS])
def test_every_command_parses_and_names_known_recipes(argv, monkeypatch):
    module, arguments = parsed(argv, monkeypatch)
    if module == "keras_highway.training.distributed.supervise":
        argv = ["-m", "keras_highway", "train", *arguments.train]
    if argv[argv.index("-m") + 1 :][:2] == ["keras_highway", "train"]:
        _, arguments = parsed(["-m", "keras_highway.training.train", *argv[argv.index("train") + 1 :]], monkeypatch)
        if arguments.recipe != "RECIPE":
            start = [f"{name}={value!r}" for name in ("init", "freeze") if (value := getattr(arguments, name))]
            choose(arguments.recipe, [*arguments.set, *start], arguments.tiny).check()


def names_of(door: str) -> set[str]:
    """Names that a door re-exports, or has in `__all__`."""
    module = importlib.import_module(door)
    if door not in PACKAGES:
        return set(module.__all__)
    nodes = ast.walk(ast.parse(Path(module.__file__).read_text("utf-8")))
    return {
        alias.asname
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname and not alias.asname.startswith("_")
    }


def public_names() -> set[str]:
    """Names of all doors of the package; names of the front door under that door only."""
    front = {id(getattr(kh, name)) for name in names_of("keras_highway")}
    return {
        f"{door}.{name}"
        for door in DOORS
        for name in names_of(door)
        if f"{door}.{name}" not in DOORS
        and (door == "keras_highway" or id(getattr(importlib.import_module(door), name)) not in front)
    }


@pytest.mark.parametrize("door", PACKAGES)
def test_the_public_names_alone_complete(door):
    module, everything = importlib.import_module(door), {}
    names = names_of(door)
    assert len(names) > 3 and {name for name in dir(module) if not name.startswith("_")} == names
    assert {"__doc__", "__name__", "__file__"} <= set(dir(module))
    exec(f"from {door} import *", everything)
    assert set(everything) - {"__builtins__"} == names
    importlib.import_module("keras_highway.analysis.cost")  # a module of the same name as a function
    assert callable(kh.analysis.cost) and kh.__version__  # what does not complete is there


def test_every_public_name_is_in_the_reference_once_and_no_other():
    listed = [name for page in REFERENCE for name in re.findall(r"^::: ([\w.]+)$", page.read_text("utf-8"), re.M)]
    assert len(listed) == len(set(listed))
    public = public_names()
    assert len(public) > 100 and public <= set(listed), public - set(listed)
    for name in listed:
        module, _, attribute = name.rpartition(".")
        value = getattr(importlib.import_module(module), attribute)
        assert name in public or value.__doc__, name


def test_readme_is_short_and_its_links_lead_to_files():
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 180
    for target in re.findall(r"(?:\]\(|src=\")([^)#\"]+)", text):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_the_size_of_the_wheel_is_that_of_the_last_release_check():
    (told,) = re.findall(r"A wheel \((\d+) MB\)", (ROOT / "README.md").read_text("utf-8"))
    log = (ROOT / "tests" / "logs" / "release.txt").read_text("utf-8")
    (size,) = re.findall(r"^keras_highway-[\d.]+-py3-none-any.whl: ([\d,]+) bytes", log, re.M)
    assert int(told) == round(int(size.replace(",", "")) / 1e6)


def test_depth_claims_equal_the_search():
    result = json.loads((ROOT / "zoo" / "searches" / "figure1" / "result.json").read_text("utf-8"))
    (claim,) = re.findall(r"\*\*Depth\.\*\*(.+?)\n- ", (ROOT / "README.md").read_text("utf-8"), re.S)
    highway, plain = (result["cells"][f"{kind}_fc100"] for kind in ("highway", "plain"))
    times = round(plain["best_loss"] / highway["best_loss"])
    points = 100 * (highway["best_test_accuracy"] - plain["best_test_accuracy"])
    assert f"{times} times" in claim and f"{points:.1f} points" in claim and "100 layers" in claim
    assert highway["n"] == plain["n"] == 30 and "thirty" in claim
    gaps = [
        100
        * (
            result["cells"][f"highway_fc{n}"]["best_test_accuracy"]
            - result["cells"][f"plain_fc{n}"]["best_test_accuracy"]
        )
        for n in (20, 50, 100)
    ]
    page = (ROOT / "docs" / "depth.md").read_text("utf-8")
    assert "{:.1f}, {:.1f} and {:.1f} points".format(*gaps) in page
    best = result["cells"]["plain_fc50"]["best_test_accuracy"]
    assert f"{100 * best:.2f} %" in (ROOT / "docs" / "findings.md").read_text("utf-8")


def test_the_lowest_keras_is_the_one_that_is_tested():
    (lowest,) = re.findall(r"^LOWEST_KERAS := (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.M)
    assert f'"keras>={lowest},' in (ROOT / "pyproject.toml").read_text("utf-8")
    assert f"({lowest} or newer)" in (ROOT / "README.md").read_text("utf-8")
    assert f"| {lowest} (lowest) |" in (ROOT / "CONTRIBUTING.md").read_text("utf-8")


@pytest.mark.parametrize(
    "path", [*PAGES, *REFERENCE, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"], ids=lambda p: p.name
)
def test_pages_use_plain_words(path):
    """Clauses that stand for a noun ("What is known of ...") and rare words; results.md is generated."""
    text = re.sub(r"^```.*?^```|<!-- table:.*?<!-- end:", "", path.read_text("utf-8"), flags=re.M | re.S)
    assert path.name == "results.md" or not re.findall(NOT_PLAIN, text, re.M)


@pytest.mark.parametrize("snippet", SNIPPETS, ids=name_of)
def test_a_snippet_defines_what_it_uses(snippet: Snippet):
    """Every name is bound in the snippet itself, and its names of the package exist."""
    tree = ast.parse(snippet.text)
    bound = {
        a.asname or a.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for a in node.names
    }
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound |= {n.id for n in names if isinstance(n.ctx, ast.Store)} | {
        n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)
    }
    bound |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    assert {n.id for n in names} <= bound | set(dir(__builtins__)) | set(__builtins__), snippet.text
    for path in re.findall(r"\bkh((?:\.\w+)+)", snippet.text):
        value = kh
        for part in path[1:].split("."):
            value = getattr(value, part, None)
            assert value is not None, f"kh{path}"


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A folder as a reader has it: samples/, data sets (of noise), photographs of two classes."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "samples").symlink_to(ROOT / "samples")
    draw = np.random.default_rng(0)
    x, y = draw.integers(0, 255, (60, 28, 28), np.uint8), np.arange(60) % 10
    np.savez(folder / "mnist.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    (folder / "DIR").mkdir()
    write_corpus(folder / "DIR")
    for part in ("train", "val"):
        for name in ("cat", "dog"):
            (folder / "pets" / part / name).mkdir(parents=True)
            for i in range(2):
                pixels = draw.integers(0, 255, (40, 40, 3), np.uint8)
                Image.fromarray(pixels).save(folder / "pets" / part / name / f"{i}.png")
    return folder


def small_highway_resnet50(weights, classes):
    """Weights that stand in for ImageNet's, which the tests do not download."""
    assert weights == "imagenet"
    small = kh.create_model("highway_resnet50", classes=3, blocks=(1, 1, 1, 1), widths=(4, 4, 8, 8), stem_width=4)
    return kh.load(kh.save(small, "stand_in", transform="imagenet"), classes=classes)


NEWER = hasattr(keras.optimizers, "MultiOptimizer")  # Keras 3.15, of which a reason may speak
RUN = list(
    {s.text: s for s in SNIPPETS if not s.reason or "pets/" in s.text or (NEWER and s.reason == "Keras 3.15")}.values()
)


@pytest.mark.filterwarnings("ignore")  # of fresh heads and of noise in the place of data
@pytest.mark.parametrize(
    "snippet",
    [
        pytest.param(snippet, marks=() if i == 0 else pytest.mark.slow, id=name_of(snippet))
        for i, snippet in enumerate(RUN)
    ],
)
def test_a_snippet_runs(snippet: Snippet, reader, monkeypatch):
    monkeypatch.chdir(reader)
    monkeypatch.setenv("KERAS_HIGHWAY_DATA", str(reader))
    monkeypatch.setattr(kh, "HighwayResNet50", small_highway_resnet50)
    shutil.rmtree("stand_in", ignore_errors=True)
    (reader / "snippet.py").write_text(snippet.text, "utf-8")
    runpy.run_path("snippet.py")


TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "any_backend.md"


def test_every_test_that_the_page_names_exists():
    named = re.findall(r"`((?:benchmarks/)?test_\w+\.py)::(test_\w+)`", PAGE.read_text("utf-8"))
    assert len(named) > 30
    functions = {
        file: {
            node.name for node in ast.parse((TESTS / file).read_text("utf-8")).body if isinstance(node, ast.FunctionDef)
        }
        for file in {file for file, _ in named}
    }
    assert [f"{file}::{test}" for file, test in named if test not in functions[file]] == []


PATHS = [ROOT / "docs" / name for name in ("imagenet.md", "imagenet_plan.md")]
IMAGENET = "".join(path.read_text("utf-8") for path in PATHS)


def test_the_figures_are_those_of_the_program():
    recipe, images = RECIPES["highway50_a2"], epoch_samples(1_281_167, 3)
    assert f"{images:,} images, {images // recipe.batch_size} steps" in IMAGENET
    assert f"{images // recipe.batch_size * recipe.epochs:,} steps" in IMAGENET
    total = without_values(lambda: cost(create_model("highway50", dtype="mixed_bfloat16")).total)
    assert f"{total.multiply_adds:,} multiply-adds" in IMAGENET and f"{total.parameters:,} x 4 bytes" in IMAGENET
    assert f"{total.activation_bytes / 2**20:.1f} MiB per image" in IMAGENET
    rows = re.findall(r"^\| ([\d,]+)[^|]* \| ([\d.e]+) \| ([\d.]+) h \| ([\d.]+) h \|$", IMAGENET, re.MULTILINE)
    assert len(rows) == 3
    for speed, operations, eight, many in rows:
        speed = int(speed.replace(",", ""))
        assert float(operations) == pytest.approx(6 * total.multiply_adds * speed, rel=0.02)
        for gpus, hours in ((8, eight), (32, many)):
            assert float(hours) == pytest.approx(recipe.epochs * images / (gpus * speed) / 3600, abs=0.06)


@pytest.mark.parametrize("net", ["highway50_imagenette_a3", "resnet50_imagenette_a3"])
def test_the_losses_of_a3_in_small_are_those_of_its_logs(net):
    rows = re.findall(rf"^\| `{net}` \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", IMAGENET, re.MULTILINE)
    log = read_log(ROOT / "zoo" / "runs" / "imagenette" / net / "1" / "log.csv")
    assert [int(epoch) for epoch, *_ in rows] == [1, 5, 10, 20]
    for epoch, *shown in rows:
        measured = log[int(epoch) - 1]
        losses = [f"{measured[column]:.4f}" for column in ("train_loss", "test_loss")]
        assert shown == [*losses, f"{100 * measured['test_accuracy']:.2f}"]


ROOT = Path(__file__).parents[1]
RELIABILITY = (ROOT / "docs" / "reliability.md").read_text("utf-8")


def test_counts_of_the_fuzzers_are_those_of_the_log():
    log = (ROOT / "tests" / "logs" / "fuzz.txt").read_text("utf-8")
    by_file, weights = {}, Counter()
    for name, ending, count in re.findall(r"^(\S+) +(refused|usable|identical) +(\d+)$", log, re.MULTILINE):
        if "." in name:
            by_file.setdefault(name, {})[ending] = int(count)
        else:
            weights[ending] += int(count)
    assert sum(weights.values()) == 2000 and len(by_file) == 6
    assert f"| 2000 | {weights['refused']} refused, {weights['identical']} bit-identical |" in RELIABILITY
    for name, ends in by_file.items():
        assert sum(ends.values()) == 2000
        assert f"| altered `{name}` | 2000 | {ends['refused']} refused, {ends['usable']} usable |" in RELIABILITY
    assert log.count(" 0 defects") == 2


def test_every_test_named_is_there():
    named = re.findall(r"`(tests/\w+\.py)::(\w+)`", RELIABILITY)
    assert len(named) > 15
    for file, name in named:
        assert f"def {name}(" in (ROOT / file).read_text("utf-8"), f"{file}::{name}"


def test_numbers_of_the_simulated_day_are_those_of_the_log():
    log = (ROOT / "tests" / "logs" / "endurance.txt").read_text("utf-8")
    patterns = (
        r"(\d+) steps in (\d+) epochs",
        r"(\d+) SIGKILL and (\d+) full disks",
        r"(\d+) jumps of clocks",
        r"end: (\d+) numbers bit-identical",
        r"memory grew by (-?[\d.]+) MiB, open files by (\d+)",
    )
    text = " ".join(RELIABILITY.replace(",", "").split())
    for pattern in patterns:
        match = re.search(pattern, log)
        assert match, pattern
        for number in match.groups():
            assert re.search(rf"(?<![\d.]){re.escape(number)}(?![\d.]*\d)", text), f"{pattern}: {number}"

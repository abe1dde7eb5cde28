"""docs/results and the tables of benchmarks and studies: published numbers, made-up runs counted by hand."""

import csv
import json
from dataclasses import replace

import pytest

from keras_highway.training.recipes import RECIPES
from keras_highway.variants import LM_VARIANTS, VARIANTS
from keras_highway.weights.registry import WEIGHTS
from training.study import difference
from zoo.release import claims, results, studies, tables
from zoo.release.tables import host_pipeline_table, steps_against_keras_table


@pytest.mark.slow
def test_the_page_is_that_of_the_results(capsys):
    assert tables.main(["--check"]) == 0, capsys.readouterr().err


def test_the_page_of_claims_is_that_of_the_results():
    assert claims.page() == (results.DOCS / "claims.md").read_text("utf-8")


def test_rows_name_variants_recipes_and_published_perplexities_that_exist():
    for table in results.published():
        for row in table["rows"]:
            if "rival" in row:
                assert "recipe" not in row
                continue
            recipe = RECIPES[row["recipe"]]
            assert recipe.variant == row["variant"] and recipe.weights == row["weights"]
            assert row["variant"] in {**VARIANTS, **LM_VARIANTS}
            if row["variant"] in LM_VARIANTS:
                assert LM_VARIANTS[row["variant"]].published_perplexity == row["published"]


def test_every_weight_with_a_published_number_is_on_the_page():
    published = {row["weights"] for table in results.published() for row in table["rows"] if "weights" in row}
    with (results.DOCS / "results.csv").open(newline="") as file:
        shown = sum(bool(row["ours"]) for row in csv.DictReader(file))
    assert shown == sum((results.ROOT / "zoo" / "weights" / name / "result.json").exists() for name in published)
    assert {"mnist10_w16.tvdn", "mnist10_w32.tvdn", "charlm_large_coupled.ptb"} <= published & set(WEIGHTS)


def test_costs_are_those_of_the_literature():
    """ResNet50 at 224: 4.09 G multiply-adds (timm, fvcore); A2 is 300 epochs of 1,281,167 images."""
    assert results.cost_of(VARIANTS["resnet50"]).multiply_adds == pytest.approx(4.09e9, rel=0.01)
    operations = 6 * 4.09e9 * 300 * 1_281_167
    assert f"{operations:.1e} operations" in results.would_take("resnet50_a2")
    assert results.would_take("charlm_large_full") == "25 epochs of 929,589 tokens"


def measured(variant, extent, precision, ratio, hardware="a processor, 2 cores, cpu"):
    name = f"{variant} / keras.applications.ResNet50, train, {extent}, {precision}"
    both = {"cpu": {"ratio": ratio}, "wall": {"ratio": 9.0}}
    return {f"{name} [tensorflow, cpu]": {"name": name, "n": 11, "hardware": hardware, **both}}


@pytest.fixture
def rows():
    return {
        key: row
        for variant, base in (("resnet50", 0.1), ("highway50", 0.5))
        for extent, more in (("32 of 128 px", 0.0), ("4 of 224 px", 0.2))
        for precision, most in (("float32", 0.1), ("mixed_bfloat16", 0.0))
        for key, row in measured(variant, extent, precision, base + more + most).items()
    }


def test_training_steps_next_to_keras(tmp_path, rows):
    path = tmp_path / "results.json"
    path.write_text(json.dumps(rows))
    _, _, *lines, _, note = steps_against_keras_table(path).splitlines()
    assert lines == [
        "| `resnet50`, 32 images of 128 x 128 | 0.20 | 0.10 |",
        "| `resnet50`, 4 images of 224 x 224 | 0.40 | 0.30 |",
        "| `highway50`, 32 images of 128 x 128 | 0.60 | 0.50 |",
        "| `highway50`, 4 images of 224 x 224 | 0.80 | 0.70 |",
    ]
    assert note == "Below 1 is faster. Medians of 11 pairs of steps. a processor, 2 cores, cpu."


def test_host_speed_next_to_timm(tmp_path):
    def row(ours, timm):
        return {"ours": ours, "timm": timm, "images": 400, "mean_bytes": 54_600.0, "hardware": "a core"}

    cases = {"plain": ([300.0, 310.0], [200.0, 190.0]), "RandAugment": ([200.0, 1.0], [100.0, 160.0])}
    cases["RandAugment, 3 copies"] = ([301.0, 2.0], [301.0, 3.0])
    name = "host pipeline, 224 px, {}, images/s of a core [tensorflow, cpu]"
    path = tmp_path / "results.json"
    path.write_text(json.dumps({name.format(case): row(*both) for case, both in cases.items()}))
    _, _, *lines, _, note = host_pipeline_table(path).splitlines()
    assert [line.rpartition("|")[0].split(" | ", 1)[1].strip() for line in lines] == [
        "310 | 200 | 1.55 | 10",
        "200 | 160 | 1.25 | 15",
        "301 | 301 | 1.00 | 10",
    ]
    assert note == "Best of 2 rounds in turn on one core; 400 JPEGs of 55 kB on average. a core."


def write(folder, accuracies, loss=2.0):
    folder.mkdir(parents=True)
    where = {"backend": "jax", "precision": "float32", "hardware": "a core", "commit": "0123456789abcdef"}
    (folder / "result.json").write_text(json.dumps({"mean": accuracies[-1], **where}))
    rows = [f"{epoch},{loss / epoch},{accuracy}" for epoch, accuracy in enumerate(accuracies, start=1)]
    (folder / "log.csv").write_text("\n".join(["epoch,train_loss,test_accuracy", *rows, ""]))


@pytest.fixture
def runs(tmp_path):
    for net, last in (("resnet20", (0.9, 0.91, 0.92)), ("highway20", (0.91, 0.92, 0.935)), ("preact20", (0.92, 0.90))):
        for seed, accuracy in enumerate(last, start=1):
            write(tmp_path / "designs" / net / str(seed), (0.5, accuracy))
    for seed, accuracy in enumerate((0.89, 0.905, 0.91), start=1):
        write(tmp_path / "designs" / "postact20_zerobn" / str(seed), (0.4, accuracy))
    (tmp_path / "designs" / "postact20" / "2").mkdir(parents=True)
    (tmp_path / "designs" / "postact20" / "2" / "diverged.json").write_text("{}")
    return tmp_path


@pytest.fixture
def three_seeds(monkeypatch):
    """All studies have three seeds."""
    all_of_three = (replace(c, study=replace(c.study, seeds=(1, 2, 3))) for c in studies.COMPARISONS)
    monkeypatch.setattr(studies, "COMPARISONS", tuple(all_of_three))


def test_differences_have_an_interval(runs):
    lines = studies.sections(runs)
    # 1, 1 and 1.5 points: mean 1.17, deviation 0.289; half of the interval is 4.303 * 0.289 / sqrt(3) = 0.717
    row = "| highway20 | - | 3 | 0 | 1.0000 ± 0.0000 | 92.17 ± 1.26 | 1.17 ± 0.29 (0.45 to 1.88) |"
    assert row in "\n".join(lines)
    assert difference([2.0]) == "2.00"
    sizes = next(line for line in lines if line.startswith("Trainable parameters"))
    assert "`resnet20` 269,722 (1.00)" in sizes and "`preact20` 286,378 (1.06)" in sizes  # as Keras counts
    assert lines[-1].endswith("jax, float32, a core, commit `0123456789ab`. Logs: `zoo/runs/designs`.")


def test_runs_of_one_folder_belong_to_their_studies(tmp_path, three_seeds):
    for seed in (1, 2, 3):
        for net in ("resnet50_uie_64", "resnet50_imagenette_5"):
            write(tmp_path / "imagenette" / net / str(seed), (0.6, 0.8))
    for rate in studies.COMPARISONS[-1].study.rate_folders("resnet50_uie_nobn_64", tmp_path / "imagenette").values():
        rate.mkdir(parents=True)
        (rate / "diverged.json").write_text("{}")
    lines = studies.sections(tmp_path)
    assert [line for line in lines if line.startswith("## ")] == [
        "## [BLOG] Evidence 3 in small: Highway50 and ResNet50 on photographs, 5 epochs",
        "## [UIE] Table 1b in small: with and without batch normalization",
    ]
    text = "\n".join(lines)
    assert "| resnet50_imagenette_5 | - | 3 | 0 | 1.0000 ± 0.0000 | 80.00 ± 0.00 |  |" in text
    assert "\n| resnet50_uie_nobn_64 | none: all diverged | 0 |" in text
    assert "The rate of each net is the best of 0.0005, 0.0015, 0.0045 after 5 epochs" in text


def test_runs_of_other_lengths_are_not_averaged(runs, tmp_path):
    write(tmp_path / "designs" / "preact20" / "3", (0.5, 0.6, 0.7))
    with pytest.raises(ValueError, match="designs/preact20 have different numbers of epochs"):
        studies.draw(runs, tmp_path / "pictures")

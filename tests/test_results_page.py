"""docs/results: every published number, ours where there is a run, and what a run would take."""

import csv
import json

import pytest

from keras_highway.training.recipes import RECIPES
from keras_highway.variants import LM_VARIANTS, VARIANTS
from keras_highway.weights.registry import WEIGHTS
from zoo.release import claims, results, tables
from zoo.release.add import pooled


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


def recipes_of(table) -> list[dict]:
    """The recipes that its networks were trained by here."""
    folders = [results.ROOT / "zoo" / "weights" / row["weights"] for row in table["rows"] if "weights" in row]
    return [json.loads((f / "recipe.json").read_text("utf-8")) for f in folders if (f / "recipe.json").exists()]


@pytest.mark.parametrize(
    ("where", "settings"),
    [
        ("Table 2", [(24, "adamw", rate, 0.5, 4, "mixed_bfloat16") for rate in (0.004, 0.002, 0.002)]),
        ("Table 3", [(30, "adamw", 0.001, 0.5, 4, "float32")]),
    ],
)
def test_notes_tell_how_the_cifar_nets_were_trained(where, settings):
    """When they are trained in another way, the notes must be told anew."""
    for table in (table for table in results.published() if table["where"] == where):
        assert settings == [
            (
                *(run[key] for key in ("epochs", "optimizer", "learning_rate")),
                *(dict(run["overrides"])["dropout_scale"], run["crop_padding"], run.get("precision", "float32")),
            )
            for run in recipes_of(table)
        ]
        assert f"{settings[0][0]} epochs with AdamW" in table["note"]


def test_a_note_tells_how_the_mnist_nets_were_trained():
    (table,) = (table for table in results.published() if table["where"] == "Table 1")
    runs = recipes_of(table)
    settings = [
        (run["epochs"], run["learning_rate"], bool(run.get("decay_multipliers")), run.get("precision", "float32"))
        for run in runs
    ]
    # When they are trained again in another way, the note must be told anew.
    assert settings == [(200, 0.01, True, "mixed_bfloat16"), (75, 0.03, True, "mixed_bfloat16")]
    page = (results.DOCS / "results.md").read_text("utf-8")
    assert page.index("[TVDN] Table 1") < page.index(table["note"]) < page.index("[TVDN] Table 2")


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


@pytest.mark.slow
def test_a_result_is_shown_with_its_spread(tmp_path):
    folder = tmp_path / "mnist10_w32.tvdn"
    folder.mkdir()
    result = {
        "metric": "test_accuracy",
        "mean": 0.99541,
        "std": 0.0002,
        "n": 5,
        "seeds": [1, 2, 3, 4, 5],
        "epochs": 300,
    }
    (folder / "result.json").write_text(json.dumps({**result, "hardware": "a GPU", "commit": "0123456789abcdef"}))
    (folder / "recipe.json").write_text(json.dumps(RECIPES["mnist10_w32"].to_dict()))
    row = next(r for r in results.rows(tmp_path) if r["row"].startswith("Highway, 10 layers, width 32"))
    assert (row["ours"], row["std"], row["n"], row["commit"]) == ("99.54", "0.02", "5", "0123456789ab")
    page = results.as_markdown([row])
    assert "| 99.55 (99.54 ± 0.02) | 99.54 ± 0.02 | 5 | 300 | float32 | a GPU, `0123456789ab` |" in page


@pytest.mark.slow
def test_top5_errors_need_a_top5(tmp_path):
    folder = tmp_path / "resnet50_uie.uie"
    folder.mkdir()
    result = {
        "metric": "test_accuracy",
        "mean": 0.75,
        "std": None,
        "n": 1,
        "seeds": [1],
        "epochs": 90,
        "hardware": "a GPU",
        "commit": "0",
    }
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "recipe.json").write_text(json.dumps(RECIPES["resnet50_uie"].to_dict()))
    with pytest.raises(ValueError, match="has no top5"):
        results.rows(tmp_path)
    two = [{**result, "seeds": [seed], "values": [0.75], "top5": top5} for seed, top5 in ((1, 0.92), (2, 0.93))]
    (folder / "result.json").write_text(json.dumps(pooled(two)))
    row = next(r for r in results.rows(tmp_path) if r["row"] == "Resnet + BN")
    assert (row["ours"], row["std"], row["n"]) == ("7.50", "0.71", "2")  # of top-5, not of top-1


def test_first_epochs_stand_beside_the_authors(tmp_path):
    run = tmp_path / "cifar10_19layer"
    run.mkdir()
    (run / "log.csv").write_text("epoch,test_accuracy\n1,0.3461\n2,0.41\n")
    (run / "recipe.json").write_text('{"seed": 1}')
    (run / "environment.json").write_text('{"hardware": "a core", "commit": "0123456789abcdef"}')
    lines = [line for line in results.first_epochs_section(tmp_path) if line.startswith("|")]
    assert lines[2].startswith("| `cifar10_19layer`, the authors | 33.8, 40.8 |")
    assert lines[3] == "| `cifar10_19layer`, here | 34.61, 41 | 1 | a core, `0123456789ab` |"
    assert len(lines) == 4  # no run of CIFAR-100, no row
    (tmp_path / "cifar10_19layer").rename(tmp_path / "highway110_fast")
    lines = [line for line in results.first_epochs_section(tmp_path) if line.startswith("|")]
    assert lines[2].startswith("| `highway110`, the authors | 36.18, 44.61 |")
    assert lines[3].startswith("| `highway110_fast`, here | 34.61, 41 | 1 |") and len(lines) == 4


def test_first_epochs_are_drawn_beside_the_authors(tmp_path, monkeypatch):
    for recipe, accuracies in {"highway110_fast": (0.3, 0.4, 0.5), "cifar10_19layer": (0.2,)}.items():
        (tmp_path / recipe).mkdir()
        lines = "".join(f"{i},{accuracy}\n" for i, accuracy in enumerate(accuracies, 1))
        (tmp_path / recipe / "log.csv").write_text(f"epoch,test_accuracy\n{lines}")
        (tmp_path / recipe / "recipe.json").write_text('{"seed": 1}')
        (tmp_path / recipe / "environment.json").write_text('{"hardware": "a core", "commit": "0123456789abcdef"}')
    drawn = []
    monkeypatch.setattr(results, "draw_training", lambda axis, curves, **options: drawn.extend(curves))
    results.draw_first_epochs(tmp_path, tmp_path / "first.png")
    assert {curve.label: (list(curve.x), [round(y, 2) for y in curve.y]) for curve in drawn} == {
        "cifar10_19layer, here": ([1], [20.0]),
        "cifar10_19layer, the authors": ([1], [33.8]),
        "highway110_fast, here": ([1, 2, 3], [30.0, 40.0, 50.0]),
        "highway110, the authors": ([1, 2, 3], [36.18, 44.61, 55.75]),
    }
    assert (tmp_path / "first.png").stat().st_size > 1000

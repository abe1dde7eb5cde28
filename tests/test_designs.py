"""The six designs at 20 layers: rows, choice of rates, table."""

import json
import re
from dataclasses import fields, replace

import pytest

from keras_highway.gating import gate_bias_for_depth
from keras_highway.specs import initial_gate_bias
from keras_highway.training.recipes import RECIPES
from keras_highway.training.recipes.cifar import DESIGNS, RATES, variant_of
from keras_highway.variants import VARIANTS
from tests.test_variants import facts_of
from training import study
from zoo.release import studies

STUDY = study.STUDIES["designs"]


def test_highway20_has_the_parameters_of_resnet20():
    """Less than 2 % apart, and not more than the baseline's."""
    counts = {design: facts_of(variant_of(design))["parameters"] for design in DESIGNS}
    assert counts["resnet"] == 269_722  # He et al. 2015, Table 6: 0.27 M
    assert 0.98 < counts["highway"] / counts["resnet"] < 1
    assert {counts[d] for d in ("highway", "postact", "postact_zerobn")} == {266_404}
    assert not any(VARIANTS[variant_of(design)].printed_parameters for design in DESIGNS)


def test_designs_differ_from_those_of_110_layers_in_depth_width_and_gate_bias_alone():
    own = {"name", "recipe", "source", "blocks", "widths", "gate_bias", "published_parameters", "printed_parameters"}
    for design in DESIGNS:
        small, large = VARIANTS[variant_of(design)], VARIANTS[variant_of(design).replace("20", "110")]
        assert small.blocks == (3, 3, 3) and initial_gate_bias(small) == gate_bias_for_depth(20) == -2
        assert all(getattr(small, f.name) == getattr(large, f.name) for f in fields(small) if f.name not in own)


def test_recipes_are_one_but_for_name_and_net():
    first, *others = (RECIPES[variant_of(design)].to_dict() for design in DESIGNS)
    for other in others:
        assert {key for key in first if first[key] != other[key]} == {"name", "variant", "weights"}


def write(folder, accuracy, recipe=None):
    folder.mkdir(parents=True)
    if recipe is not None:
        (folder / "recipe.json").write_text(json.dumps(recipe.to_dict()))
    (folder / "result.json").write_text(json.dumps({"mean": accuracy}))
    (folder / "log.csv").write_text(f"epoch,train_loss,test_accuracy\n1,2.0,0.1\n2,0.5,{accuracy}\n")


def test_a_run_that_goes_on_after_its_result_is_not_over(tmp_path, monkeypatch):
    """It keeps the result of the epoch after which it was ended, with the weights, until it ends again."""
    recipe, trained = STUDY.seed_recipe("highway20", 0.2, 1), []
    folder = STUDY.run_folder("highway20", 1, tmp_path)
    write(folder, 0.5, recipe)
    for rate in RATES:
        write(STUDY.rate_folders("highway20", tmp_path)[rate], 0.5, STUDY.rate_recipe("highway20", rate))
    short = STUDY.rate_folders("highway20", tmp_path)[RATES[1]]
    for unfinished in (folder, short):
        (unfinished / "result.json").write_text(json.dumps({"mean": 0.9, "epochs": 1, "of_epochs": 2}))
    assert STUDY.known_rate("highway20", tmp_path) is None
    assert "| highway20 | - | 0 | 0 |" in STUDY.table(("highway20",), (1,), tmp_path)
    (comparison,) = (one for one in studies.COMPARISONS if one.study is STUDY)
    assert studies._finished(replace(comparison, folder="."), tmp_path) == {}
    monkeypatch.setattr("keras_highway.training.loop.train", lambda recipe, data, out, until: trained.append(out))
    assert STUDY.chosen_rate("highway20", None, tmp_path) and trained == [short]
    (short / "diverged.json").write_text("{}")
    assert STUDY.chosen_rate("highway20", None, tmp_path) == RATES[0]  # it counts as accuracy 0


def test_the_rate_is_that_of_the_best_held_out_accuracy(tmp_path):
    for rate, accuracy in zip(RATES, (0.5, 0.7, 0.6), strict=True):
        write(STUDY.rate_folders("highway20", tmp_path)[rate], accuracy, STUDY.rate_recipe("highway20", rate))
    assert STUDY.chosen_rate("highway20", None, tmp_path) == RATES[1]
    for rate, accuracy in zip(RATES[:2], (0.7, 0.7), strict=True):
        write(STUDY.rate_folders("preact20", tmp_path)[rate], accuracy, STUDY.rate_recipe("preact20", rate))
    diverged = STUDY.rate_folders("preact20", tmp_path)[RATES[2]]
    diverged.mkdir(parents=True)
    (diverged / "diverged.json").write_text("{}")
    (diverged / "recipe.json").write_text(json.dumps(STUDY.rate_recipe("preact20", RATES[2]).to_dict()))
    assert STUDY.chosen_rate("preact20", None, tmp_path) == RATES[0]  # of equal ones the lower


def test_runs_of_other_settings_are_not_taken_for_these(tmp_path):
    """Nor are rates that all diverged chosen from."""
    folders = STUDY.rate_folders("highway20", tmp_path)
    for rate, folder in folders.items():
        write(folder, 0.5, STUDY.rate_recipe("highway20", rate))
    with pytest.raises(ValueError, match=r"highway20_0\.1 holds a finished run of another recipe"):
        STUDY.chosen_rate("highway20", None, tmp_path, settings=["precision=float32"])
    for folder in folders.values():
        (folder / "result.json").rename(folder / "diverged.json")
    with pytest.raises(ValueError, match="highway20 diverged at every rate"):
        STUDY.chosen_rate("highway20", None, tmp_path)


def test_a_network_that_diverges_at_every_rate_does_not_keep_the_others_from_training(tmp_path, monkeypatch):
    for net, end in (("highway20", "diverged.json"), ("resnet20", "result.json")):
        for rate, folder in STUDY.rate_folders(net, tmp_path).items():
            write(folder, 0.5, STUDY.rate_recipe(net, rate))
            (folder / "result.json").rename(folder / end)
    trained, train = [], study._train
    monkeypatch.setattr(
        study, "_train", lambda r, data, folder: trained.append(folder) if r.epochs > 5 else train(r, data, folder)
    )
    with pytest.raises(study.DivergedError, match=r"highway20 diverged at every rate, \(0\.1, 0\.2, 0\.4\)"):
        STUDY.run(("highway20", "resnet20"), (1, 2), None, tmp_path)
    assert trained == [tmp_path / "resnet20" / seed for seed in ("1", "2")]
    highway, resnet = STUDY.table(("highway20", "resnet20"), (1, 2), tmp_path).splitlines()[-2:]
    assert highway.startswith("| highway20 | none: all diverged | 0 |") and resnet.startswith("| resnet20 | 0.1 | 0 |")


@pytest.mark.parametrize("setting", ["learning_rate=0.1", "seed=7", "holdout_images=5"])
def test_a_study_sets_rate_seed_and_held_out_images_itself(setting, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        study.main(["designs", "--tiny", "--out", str(tmp_path), "--set", setting])
    assert ended.value.code == 2
    assert re.match(rf"error: .* is what a study sets itself.*--set {setting}\n", capsys.readouterr().err)


def test_short_runs_are_tested_on_held_out_images():
    recipe = STUDY.rate_recipe("highway20", 0.2)
    assert (recipe.holdout_images, recipe.epochs, recipe.learning_rate) == (5000, 5, 0.2)
    assert STUDY.seed_recipe("highway20", 0.2, 3).holdout_images is None


def test_the_table_pairs_seeds(tmp_path):
    for seed, (resnet, highway) in enumerate([(0.90, 0.91), (0.92, 0.925)], start=1):
        write(tmp_path / "resnet20" / str(seed), resnet)
        write(tmp_path / "highway20" / str(seed), highway)
    (tmp_path / "highway20" / "3").mkdir()
    (tmp_path / "highway20" / "3" / "diverged.json").write_text("{}")
    rows = STUDY.table(("resnet20", "highway20", "preact20"), (1, 2, 3), tmp_path).splitlines()
    assert rows[2] == "| resnet20 | - | 2 | 0 | 0.5000 ± 0.0000 | 91.00 ± 1.41 |  |"
    assert rows[3] == "| highway20 | - | 2 | 1 | 0.5000 ± 0.0000 | 91.75 ± 1.06 | 0.75 ± 0.35 |"
    assert rows[4] == "| preact20 | - | 0 | 0 | - | - | - |"


@pytest.mark.slow
def test_the_whole_way_in_small_and_again_at_no_cost(tmp_path, capsys):
    arguments = ["designs", "--tiny", "--nets", "resnet20", "highway20", "--seeds", "1", "--out", str(tmp_path)]
    assert study.main(arguments) == 0
    first = capsys.readouterr().out
    assert "| highway20 | " in first and len(list(tmp_path.glob("tiny/rates/*/result.json"))) == 6
    stamps = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("checkpoint.npz")}
    assert study.main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[-4:] == first.splitlines()[-4:]
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("checkpoint.npz")} == stamps

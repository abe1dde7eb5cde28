"""Studies of designs, of block forms and of photographs: rows, parameters, choice of rates, tables."""

import json
import math
from dataclasses import fields, replace
from pathlib import Path

import pytest

from keras_highway._support.keras_models import without_values
from keras_highway.gating import gate_bias_for_depth
from keras_highway.layers import GatedBlock
from keras_highway.models.builder import build
from keras_highway.specs import initial_gate_bias, override
from keras_highway.training.recipes import RECIPES
from keras_highway.training.recipes.cifar import DESIGNS, FORMS, RATES, variant_of
from keras_highway.training.recipes.cifar import form_of as recipe_of
from keras_highway.training.recipes.imagenet import A3_RATES, UIE_NETS
from keras_highway.variants import VARIANTS
from tests.test_variants import facts_of
from training import search, study
from training import study as program
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


def test_a_resumed_run_with_an_old_result_is_not_finished(tmp_path, monkeypatch):
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


def test_the_table_pairs_seeds(tmp_path):
    for seed, (resnet, highway) in enumerate([(0.90, 0.91), (0.92, 0.925)], start=1):
        write(tmp_path / "resnet20" / str(seed), resnet)
        write(tmp_path / "highway20" / str(seed), highway)
    (tmp_path / "highway20" / "3").mkdir()
    (tmp_path / "highway20" / "3" / "diverged.json").write_text("{}")
    rows = STUDY.table(("resnet20", "highway20", "preact20"), (1, 2, 3), tmp_path).splitlines()
    assert rows[2] == "| resnet20 | - | 2 | 0 | 0.5000 ± 0.0000 | 91.00 ± 1.41 |  |"
    assert rows[3] == "| highway20 | - | 2 | 1 | 0.5000 ± 0.0000 | 91.75 ± 1.06 | 0.75 ± 0.35 (-2.43 to 3.93) |"
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


@pytest.mark.parametrize(
    ("main", "arguments", "message"),
    [
        (study.main, ["designs", "--data", "{none}"], "No file {none}/cifar10.npz"),
        (search.main, ["figure1", "--data", "{none}", "--rungs", "1x1"], "No file {none}/mnist.npz"),
        (study.main, ["imagenette_uie", "--set", "seed=3"], "`seed` is what a study sets itself: see --seeds."),
    ],
)
def test_what_is_wrong_is_named(main, arguments, message, tmp_path, capsys):
    none = str(tmp_path / "none")
    with pytest.raises(SystemExit) as ended:
        main([*(word.format(none=none) for word in arguments), "--out", str(tmp_path / "out")])
    error = capsys.readouterr().err
    assert ended.value.code == 2 and error.startswith(f"error: {message.format(none=none)}")
    assert len(error.splitlines()) == 1


HIGHWAY20 = 266_404


def branch(channels, inside, out):
    """Two 3x3 convolutions without biases, gamma and beta behind each."""
    return 9 * channels * inside + 2 * inside + 9 * inside * out + 2 * out


def parameters_by_hand(form, widths):
    """A stem of 16 channels, three stages of three blocks, a classifier of 10 classes."""
    total, channels = 27 * 16 + 2 * 16, 16
    for w in widths:
        others = branch(w, w, w)
        gates = {
            "channel": 3 * w,
            "low_rank": branch(channels, 8, w) + 2 * branch(w, 8, w),
            "tied": branch(channels, w, w) + others - 2 * w,  # biases in place of gamma and beta
        }.get(form, branch(channels, w, w) + 2 * others)
        transforms = branch(channels, w, w) + 2 * others - (2 * 9 * w * w if form == "shared" else 0)
        projection = 0 if channels == w else channels * w + 2 * w
        total += transforms + gates + projection
        channels = w
    return total + 10 * channels + 10


def built(form):
    recipe = RECIPES[recipe_of(form)]
    return without_values(lambda: build(override(VARIANTS[recipe.variant], **dict(recipe.overrides))))


@pytest.mark.parametrize("form", FORMS)
def test_parameters_are_equal_to_within_two_percent(form):
    model = built(form)
    count = sum(math.prod(v.shape) for v in model.trainable_variables)
    widths = dict(RECIPES[recipe_of(form)].overrides).get("widths", VARIANTS["highway20"].widths)
    assert count == parameters_by_hand(form, widths)
    assert abs(count / HIGHWAY20 - 1) < 0.02
    documented = {"channel": 266_748, "low_rank": 264_991, "tied": 263_547, "shared": 264_063}
    assert count == documented.get(form, HIGHWAY20)  # what the recipes' page states


def test_forms_are_what_they_are_called():
    def of(form):
        return [layer for layer in built(form).layers if isinstance(layer, GatedBlock)]

    assert {block.gate for block in of("channel")} == {"channel"}
    assert {(block.gate, block.gate_rank) for block in of("low_rank")} == {("low_rank", 8)}
    assert [block.gate for block in of("tied")] == ["same", "tied", "tied"] * 3
    assert [block.shared_transform for block in of("shared")] == [False, True, True] * 3
    rates = [block.stochastic_depth for block in of("stochastic_depth")]
    assert rates == pytest.approx([0.025 * i for i in range(9)])


def test_recipes_are_one_but_for_the_form():
    base = RECIPES["highway20"].to_dict()
    for form in FORMS[1:]:
        other = RECIPES[recipe_of(form)].to_dict()
        assert {key for key in base if base[key] != other[key]} == {"name", "weights", "overrides", "source"}
        assert other["variant"] == "highway20" and other["epochs"] == 15
    forms = study.STUDIES["block_forms"]
    assert (forms.base, forms.rates, forms.nets[0]) == ("highway20", RATES, "highway20")
    recipe = forms.rate_recipe("highway20_tied", 0.2)
    assert (recipe.holdout_images, recipe.epochs, recipe.learning_rate) == (5000, 5, 0.2)


ROOT = Path(__file__).parents[1]
IMAGENETTE = {name: program.STUDIES[f"imagenette_{name}"] for name in ("pair", "pair_5", "a3", "uie")}


def differences(names):
    first, *others = (RECIPES[name].to_dict() for name in names)
    return {key for other in others for key in first if first[key] != other[key]}


def test_both_nets_have_one_recipe():
    assert differences(IMAGENETTE["pair"].nets) == {"name", "variant", "weights", "learning_rate"}
    assert differences(IMAGENETTE["uie"].nets) == {"name", "variant", "weights"}
    assert len(set(IMAGENETTE["uie"].nets)) == 6 and {net.endswith("_nobn") for net in UIE_NETS} == {
        True,
        False,
    }
    assert differences(IMAGENETTE["a3"].nets) == {"name", "variant", "weights"}
    small, large = (RECIPES[f"highway50_{name}"] for name in ("imagenette_a3", "a3"))
    procedure = ("optimizer", "loss", "target_threshold", "rand_augment", "mixup", "cutmix", "weight_decay")
    assert [getattr(small, f) for f in procedure] == [getattr(large, f) for f in procedure]
    assert (small.schedule, large.schedule) == ("cosine", "epoch_cosine") and small.learning_rate in A3_RATES
    assert {RECIPES[name].clip_norm for name in IMAGENETTE["uie"].nets} == {1.0}
    short = differences(["highway50_imagenette", "highway50_imagenette_5"])
    assert short == {"name", "weights", "epochs", "warmup_epochs"}


@pytest.mark.parametrize(
    ("study", "net"),
    [(s, net) for s in ("pair", "a3", "uie") for net in IMAGENETTE[s].nets],
)
def test_rates_are_those_that_were_best_on_held_out_photographs(study, net):
    """Nothing is trained: all short runs are in `zoo/runs`."""
    chosen = IMAGENETTE[study].chosen_rate(net, None, ROOT / "zoo" / "runs" / "imagenette")
    assert RECIPES[net].learning_rate == chosen
    if study == "pair":
        assert RECIPES[f"{net}_5"].learning_rate == chosen


@pytest.mark.slow
@pytest.mark.parametrize(("study", "net"), [("uie", "resnet50_uie_nobn_64")])
def test_the_whole_way_in_small(study, net, tmp_path, capsys):
    arguments = ["--tiny", "--nets", net, "--seeds", "1", "--out", str(tmp_path), "--set", "precision=float32"]
    assert program.main([f"imagenette_{study}", *arguments]) == 0
    first = capsys.readouterr().out
    assert {json.loads(path.read_text())["precision"] for path in tmp_path.rglob("recipe.json")} == {"float32"}
    assert len(list(tmp_path.glob("tiny/rates/*/result.json"))) == 3
    assert program.main([f"imagenette_{study}", "--table", *arguments]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == first.splitlines()[-1]

"""The recipes and studies of photographs: rows, choice of rates, the whole way in small."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from keras_highway.data.transforms import TRANSFORMS
from keras_highway.training import loop
from keras_highway.training.data.augment import random_crop
from keras_highway.training.recipe import changed
from keras_highway.training.recipes import RECIPES
from keras_highway.training.recipes.imagenet import A3_RATES, RATES, UIE_NETS
from training import study as program

ROOT = Path(__file__).parents[1]
SMALL = (("blocks", (1, 1)), ("widths", (4, 8)), ("stem_width", 8), ("input_shape", (64, 64, 3)))
STUDIES = {name: program.STUDIES[f"imagenette_{name}"] for name in ("pair", "pair_5", "a3", "uie")}


def differences(names):
    first, *others = (RECIPES[name].to_dict() for name in names)
    return {key for other in others for key in first if first[key] != other[key]}


def test_both_nets_have_one_recipe():
    assert differences(STUDIES["pair"].nets) == {"name", "variant", "weights", "learning_rate"}
    assert differences(STUDIES["uie"].nets) == {"name", "variant", "weights"}
    assert len(set(STUDIES["uie"].nets)) == 6 and {net.endswith("_nobn") for net in UIE_NETS} == {
        True,
        False,
    }
    assert differences(STUDIES["a3"].nets) == {"name", "variant", "weights"}
    small, large = (RECIPES[f"highway50_{name}"] for name in ("imagenette_a3", "a3"))
    procedure = ("optimizer", "loss", "target_threshold", "rand_augment", "mixup", "cutmix", "weight_decay")
    assert [getattr(small, f) for f in procedure] == [getattr(large, f) for f in procedure]
    assert (small.schedule, large.schedule) == ("cosine", "epoch_cosine") and small.learning_rate in A3_RATES
    assert {RECIPES[name].clip_norm for name in STUDIES["uie"].nets} == {1.0}
    short = differences(["highway50_imagenette", "highway50_imagenette_5"])
    assert short == {"name", "weights", "epochs", "warmup_epochs"}


@pytest.mark.parametrize(
    ("study", "net"),
    [(s, net) for s in ("pair", "a3", "uie") for net in STUDIES[s].nets],
)
def test_rates_are_those_that_were_best_on_held_out_photographs(study, net):
    """Nothing is trained: all short runs are in `zoo/runs`."""
    chosen = STUDIES[study].chosen_rate(net, None, ROOT / "zoo" / "runs" / "imagenette")
    assert RECIPES[net].learning_rate == chosen
    if study == "pair":
        assert RECIPES[f"{net}_5"].learning_rate == chosen


@pytest.mark.parametrize("name", [*STUDIES["pair"].nets, *STUDIES["uie"].nets])
def test_nets_are_built_for_the_size_of_the_test_images(name):
    recipe = RECIPES[name]
    assert dict(recipe.overrides)["input_shape"][:2] == TRANSFORMS[recipe.transform].size
    assert recipe.input_shape is None


def test_short_runs_serve_the_studies_of_5_and_20_epochs(tmp_path):
    long, short = STUDIES["pair"], STUDIES["pair_5"]
    net = "highway50_imagenette"
    assert long.rate_folders(net, tmp_path) == short.rate_folders(net, tmp_path)
    assert tuple(long.rate_folders(net, tmp_path)) == RATES
    rate = long.rate_recipe(net, RATES[0])
    assert rate == short.rate_recipe(net, RATES[0])
    assert (rate.holdout_images, rate.epochs, rate.warmup_epochs, rate.learning_rate) == (1000, 5, 1, RATES[0])
    whole = [study.seed_recipe(net, RATES[0], 2) for study in (long, short)]
    assert [(r.name, r.epochs, r.holdout_images) for r in whole] == [(net, 20, None), (f"{net}_5", 5, None)]
    assert [study.run_folder(net, 2, tmp_path).relative_to(tmp_path).as_posix() for study in (long, short)] == [
        f"{net}/2",
        f"{net}_5/2",
    ]


def test_crops_are_as_large_as_the_recipe_states():
    draw = np.random.default_rng(0)
    boxes = np.array([random_crop(300, 400, draw, 0.35) for _ in range(2000)])
    shares = boxes[:, 2] * boxes[:, 3] / (300 * 400)
    assert 0.345 < shares.min() < 0.36 and shares.max() > 0.95
    with pytest.raises(ValueError, match=r"`crop_scale`: .*> 0.*Received: crop_scale=0.0"):
        changed(RECIPES["highway50_imagenette"], crop_scale=0.0)


def test_a_study_names_the_nets_that_it_does_not_know(capsys):
    with pytest.raises(SystemExit):
        program.main(["imagenette_uie", "--nets", "highway50_imagenette"])
    assert "--nets are of highway50_uie_64," in capsys.readouterr().err


@pytest.mark.parametrize(("name", "seeds"), [("imagenette_pair", (1,)), ("imagenette_pair_5", (1, 2, 3))])
def test_a_study_has_its_own_seeds(name, seeds, monkeypatch, tmp_path, capsys):
    """And prints its table even where a network diverged."""
    monkeypatch.setattr(program.Study, "table", lambda self, nets, seeds, out: str(seeds))
    assert program.main([name, "--table", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{seeds}\n"

    def lost(self, nets, asked, *others):
        raise program.DivergedError(f"of {asked}")

    monkeypatch.setattr(program.Study, "run", lost)
    with pytest.raises(SystemExit) as ended:
        program.main([name, "--out", str(tmp_path)])
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out, printed.err) == (2, f"{seeds}\n", f"error: of {seeds}\n")


@pytest.mark.slow
def test_the_loss_falls_on_photographs_and_the_result_names_the_set(tmp_path):
    """Two classes of photographs that their colour tells apart, JPEGs of several sizes, by the recipe itself."""
    draw = np.random.default_rng(0)
    for split, count in (("train", 24), ("val", 8)):
        for k, name in enumerate(("n01440764", "n02102040")):
            folder = tmp_path / "data" / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = draw.integers(0, 120, (70 + i, 90 - i, 3)).astype(np.uint8)
                pixels[..., k] += 100
                Image.fromarray(pixels).save(folder / f"{i}.JPEG", quality=90)
    recipe = dataclasses.replace(
        RECIPES["highway50_imagenette"],
        overrides=SMALL,
        transform="imagenet_64",
        batch_size=8,
        epochs=5,
        warmup_epochs=1,
        precision="float32",
        holdout_images=8,
    )
    result = loop.train(recipe, tmp_path / "data", tmp_path / "run")
    losses = np.genfromtxt(tmp_path / "run" / "log.csv", delimiter=",", names=True)["train_loss"]
    assert losses[-1] < 0.75 * losses[0] and result["mean"] >= 0.75
    assert result["data"] == "imagenette" and json.loads((tmp_path / "run" / "recipe.json").read_text())["epochs"] == 5


@pytest.mark.slow
@pytest.mark.parametrize(("study", "net"), [("pair_5", "highway50_imagenette"), ("uie", "resnet50_uie_nobn_64")])
def test_the_whole_way_in_small(study, net, tmp_path, capsys):
    arguments = ["--tiny", "--nets", net, "--seeds", "1", "--out", str(tmp_path), "--set", "precision=float32"]
    assert program.main([f"imagenette_{study}", *arguments]) == 0
    first = capsys.readouterr().out
    assert {json.loads(path.read_text())["precision"] for path in tmp_path.rglob("recipe.json")} == {"float32"}
    assert len(list(tmp_path.glob("tiny/rates/*/result.json"))) == 3
    assert program.main([f"imagenette_{study}", "--table", *arguments]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == first.splitlines()[-1]

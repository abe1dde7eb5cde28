"""docs/results.md's comparisons: table, claims and picture of made-up runs, counted by hand."""

import json
from dataclasses import replace

import numpy as np
import pytest

from keras_highway.training.recipes import RECIPES
from zoo.release import studies


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
    """Of all studies, also those that keep one."""
    all_of_three = (replace(c, study=replace(c.study, seeds=(1, 2, 3))) for c in studies.COMPARISONS)
    monkeypatch.setattr(studies, "COMPARISONS", tuple(all_of_three))


def test_claims_are_decided_once_all_runs_are_over(runs):
    lines = studies.sections(runs)
    highway, exclusive, preact, zerobn, unstable = (line for line in lines if line.startswith("| ") and "**" in line)
    # 1, 1 and 1.5 points: mean 1.17, deviation 0.289; half of the interval is 4.303 * 0.289 / sqrt(3) = 0.717
    measured = "`highway20` minus `resnet20` is 1.17 ± 0.29 points (0.45 to 1.88), n = 3"
    assert highway.endswith(f"**holds** | {measured} |")
    assert "**not all runs are finished** | `resnet20` minus `exclusive20`: no pair of seeds" in exclusive
    assert "**not all runs are finished** | `resnet20` minus `preact20` is -0.50 ± 2.12 points" in preact
    # -1, -0.5 and -1 points: -0.83 - 0.72 is below the margin, -0.83 + 0.72 above it
    assert "cannot be decided** | `postact20_zerobn` minus `resnet20` is -0.83 ± 0.29 points (-1.55 to -0.12)" in zerobn
    assert "**not all runs are finished**" in unstable and "1 of 1 of `postact20`" in unstable
    assert "| highway20 | - | 3 | 0 | 1.0000 ± 0.0000 | 92.17 ± 1.26 | 1.17 ± 0.29 |" in "\n".join(lines)
    sizes = next(line for line in lines if line.startswith("Trainable parameters"))
    assert "`resnet20` 269,722 (1.00)" in sizes and "`preact20` 286,378 (1.06)" in sizes  # as Keras counts
    assert lines[-1].endswith("jax, float32, a core, commit `0123456789ab`. Logs: `zoo/runs/designs`.")


@pytest.mark.slow
def test_forms_of_the_block_are_told_once_one_beside_the_base_is_trained(runs, tmp_path):
    assert not any("Forms of `highway20`" in line for line in studies.sections(runs))
    for seed, accuracy in enumerate((0.90, 0.905, 0.925), start=1):
        write(tmp_path / "designs" / "highway20_channel" / str(seed), (0.5, accuracy))
    lines = studies.sections(runs)
    lines = lines[next(i for i, line in enumerate(lines) if "Forms of `highway20`" in line) :]
    channel, low_rank, *_ = (line for line in lines if line.startswith("| ") and "**" in line)
    # 0.91 - 0.90, 0.92 - 0.905 and 0.935 - 0.925: mean 1.17, deviation 0.289, as above
    measured = "`highway20` minus `highway20_channel` is 1.17 ± 0.29 points (0.45 to 1.88), n = 3"
    assert f"ahead of those that do not | **holds** | {measured}" in channel
    assert "**not all runs are finished** | `highway20_low_rank` minus `highway20`: no pair of seeds" in low_rank
    (sizes,) = (line for line in lines if line.startswith("Trainable parameters"))
    assert "`highway20_channel` 266,748 (1.00)" in sizes and "`highway20_tied` 263,547 (0.99)" in sizes


def test_designs_in_short(runs):
    rows = studies.designs_table(runs).splitlines()
    assert rows[2] == "| `resnet20` | 269,722 | 3 | 91.00 ± 1.00 |  |"
    assert rows[3] == "| `highway20` | 266,404 | 3 | 92.17 ± 1.26 | 1.17 ± 0.29 (0.45 to 1.88) |"
    assert rows[4] == "| `preact20` | 286,378 | 2 | 91.00 ± 1.41 | 0.50 ± 2.12 (-18.56 to 19.56) |"
    assert rows[-1] == "±: standard deviation over seeds. jax, float32, a core, commit `0123456789ab`."


def test_runs_in_several_places_are_told_by_net_and_seed(runs):
    """A difference between processors, or commits, is no difference between networks."""
    path = runs / "designs" / "highway20" / "2" / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "hardware": "another core"}))
    note = studies.designs_table(runs).splitlines()[-1]
    assert "jax, float32, another core, commit `0123456789ab`. Processors and commits differ" in note


def test_training_losses_of_nets_with_and_without_normalization(tmp_path, three_seeds):
    """The lower loss fits better; runs of one folder belong to several studies."""
    for seed in (1, 2, 3):
        for net, loss, accuracy in (("resnet50_uie_64", 1.0, 0.7), ("highway50_uie_64", 1.5 + seed / 50, 0.701)):
            write(tmp_path / "imagenette" / net / str(seed), (0.5, accuracy), loss)
        write(tmp_path / "imagenette" / "resnet50_imagenette_5" / str(seed), (0.6, 0.8))
    lines = studies.sections(tmp_path)
    assert [line for line in lines if line.startswith("## ")] == [
        "## [BLOG] Evidence 3 in small: Highway50 and ResNet50 on photographs, 5 epochs",
        "## [UIE] Table 1b in small: with and without batch normalization",
    ]
    fits, matches, *_ = (line for line in lines if line.startswith("| with it"))
    # (1.52, 1.54, 1.56 - 1) / 2: mean 0.27, deviation 0.01; half of the interval is 4.303 * 0.01 / sqrt(3) = 0.0248
    measured = "training loss of `highway50_uie_64` minus `resnet50_uie_64` is 0.2700 ± 0.0100 nats"
    assert fits.startswith(f"| with it ResNet fits the training set better | **holds** | {measured}")
    assert "(0.2452 to 0.2948), n = 3 |" in fits
    assert "**holds** | `highway50_uie_64` minus `resnet50_uie_64` is 0.10 ± 0.00 points" in matches
    without = [line for line in lines if line.startswith("| without it")]
    assert len(without) == 5 and all("**not all runs are finished**" in line for line in without)
    (pair,) = (line for line in lines if line.startswith("| Highway50"))
    assert "not all runs are finished** | `highway50_imagenette_5` minus `resnet50_imagenette_5`: no pair" in pair
    assert "| resnet50_imagenette_5 | - | 3 | 0 | 1.0000 ± 0.0000 | 80.00 ± 0.00 |  |" in "\n".join(lines)
    assert sum("Logs: `zoo/runs/imagenette`." in line for line in lines) == 2
    (goal,) = (line for line in lines if line.startswith("- goal"))
    assert goal == "- goal 85.8 %, `resnet50_imagenette_5`: **missed** by 5.80 points, 3 seeds."
    assert any("The rate of each net is the best of 0.0005, 0.0015, 0.0045 after 5 epochs" in line for line in lines)


def test_one_seed_of_twenty_epochs_and_what_another_procedure_does_beside(tmp_path):
    for net, accuracy in (("resnet50_imagenette", 0.9), ("highway50_imagenette", 0.92)):
        write(tmp_path / "imagenette" / net / "1", (0.5, accuracy))
        write(tmp_path / "imagenette" / net / "2", (0.5, 0.1))  # of a seed that the study does not have
    logged = "epoch,train_loss,test_loss,test_accuracy\n" + "".join(f"{e},{9 / e},{8 / e},0.8\n" for e in range(1, 21))
    write(tmp_path / "imagenette" / "highway50_imagenette_a3" / "1", (0.5, 0.8))
    (tmp_path / "imagenette" / "highway50_imagenette_a3" / "1" / "log.csv").write_text(logged)
    lines = studies.sections(tmp_path)
    claim, other = (line for line in lines if line.startswith("| Highway50 matches"))
    told = "cannot be decided** | `highway50_imagenette` minus `resnet50_imagenette` is 2.00 points, n = 1: no interval"
    assert told in claim
    assert "**not all runs are finished**" in other
    assert [line for line in lines if line.startswith("- goal")] == [
        "- goal 91.6 %, `highway50_imagenette`: **reached**, 1 seed.",
        "- goal 91.6 %, `resnet50_imagenette`: **missed** by 1.60 points, 1 seed.",
    ]
    beside = "- `highway50_imagenette_a3` 80.00 %, by the recipe `highway50_imagenette`, 20 epochs: 92.00 %."
    assert [line for line in lines if "by the recipe" in line] == [beside]
    assert any("one seed: no spread and no interval, so nothing is decided." in line for line in lines)
    assert sum(line.startswith("Lines: one seed. jax") for line in lines) == 2
    rows = [line for line in lines if line.startswith("| `highway50_imagenette_a3`")]
    assert rows == [
        f"| `highway50_imagenette_a3` | {epoch} | {9 / epoch:.4f} | {8 / epoch:.4f} | 80.00 |" for epoch in (1, 5, 10)
    ]
    short = "".join(logged.splitlines(keepends=True)[:8])
    (tmp_path / "imagenette" / "highway50_imagenette_a3" / "1" / "log.csv").write_text(short)
    with pytest.raises(ValueError, match="highway50_imagenette_a3 has no epoch 10"):
        studies.sections(tmp_path)


def test_a_goal_is_missed_where_a_seed_diverged(tmp_path):
    for net, seeds in (("resnet50_imagenette_5", (1, 2)), ("highway50_imagenette_5", (1, 2))):
        for seed in seeds:
            write(tmp_path / "imagenette" / net / str(seed), (0.5, 0.9))
    (tmp_path / "imagenette" / "resnet50_imagenette_5" / "3").mkdir()
    (tmp_path / "imagenette" / "resnet50_imagenette_5" / "3" / "diverged.json").write_text("{}")
    lines = studies.sections(tmp_path)
    (goal,) = (line for line in lines if line.startswith("- goal"))
    assert goal == "- goal 85.8 %, `resnet50_imagenette_5`: **missed**: 1 of 3 diverged."  # the other is not over
    # Everywhere by the name of the recipe of 5 epochs, not by that of 20.
    text = "\n".join(lines)
    assert "`highway50_imagenette_5` minus `resnet50_imagenette_5` is " in text and "_imagenette`" not in text
    assert "![Training loss and test accuracy, epoch by epoch: highway50_imagenette_5, resnet50_imagenette_5]" in text


def test_a_net_that_diverged_at_every_rate_has_lost(tmp_path, three_seeds):
    for seed in (1, 2, 3):
        write(tmp_path / "imagenette" / "highway50_uie_nobn_64" / str(seed), (0.5, 0.7))
    for rate in studies.COMPARISONS[-1].study.rate_folders("resnet50_uie_nobn_64", tmp_path / "imagenette").values():
        rate.mkdir(parents=True)
        (rate / "diverged.json").write_text("{}")
    lines = studies.sections(tmp_path)
    trains, fits = (next(x for x in lines if x.startswith(f"| without it {w}")) for w in ("ResNet tr", "Highway fits"))
    assert "**contradicted** | no run ended; diverged: `resnet50_uie_nobn_64` at every rate |" in trains
    assert "**holds** | " in fits and fits.endswith("; diverged: `resnet50_uie_nobn_64` at every rate |")
    assert any(
        line.startswith("| resnet50_uie_nobn_64 | none: all diverged | 0 |") for line in "\n".join(lines).splitlines()
    )


@pytest.mark.parametrize(
    ("accuracies", "diverged", "word"),
    [((0.5, 0.6, 0.7), 0, "holds"), ((0.5, 0.6, 0.1), 0, "contradicted"), ((0.5, 0.6), 1, "contradicted")],
)
def test_whether_a_net_trains_without_normalization(accuracies, diverged, word, tmp_path, three_seeds):
    net = tmp_path / "imagenette" / "resnet50_uie_nobn_64"
    for seed, accuracy in enumerate(accuracies, start=1):
        write(net / str(seed), (0.1, accuracy))
    if diverged:
        (net / "3").mkdir()
        (net / "3" / "diverged.json").write_text("{}")
    (line,) = (line for line in studies.sections(tmp_path) if line.startswith("| without it ResNet trains"))
    assert f"| **{word}** | test accuracy " in line
    assert line.endswith("diverged: 1 of 3 of `resnet50_uie_nobn_64` |") == bool(diverged)


@pytest.mark.parametrize(
    ("kind", "pairs", "gone", "word"),
    [
        ("ahead", [1.0, 1.2, 1.1], (0, 0), "holds"),
        ("ahead", [-1.0, -1.2, -1.1], (0, 0), "contradicted"),
        ("ahead", [0.1, 1.2, 0.3], (0, 0), "cannot be decided"),
        ("ahead", [1.0], (0, 0), "cannot be decided"),
        ("fits", [0.01, 0.012, 0.011], (0, 0), "holds"),
        ("fits", [0.01, -0.01, 0.0], (0, 0), "cannot be decided"),
        ("matches", [-0.1, 0.1, 0.0], (0, 0), "holds"),
        ("matches", [-3.0, 2.5, 0.2], (0, 0), "cannot be decided"),  # noise is no proof
        ("matches", [1.0, 1.2], (1, 0), "contradicted"),  # ahead where it lives, but a seed diverged
        ("diverges", [0.1, 0.2, 0.1], (0, 1), "holds"),
        ("diverges", [0.1, 0.2, 0.1], (0, 0), "contradicted"),
    ],
)
def test_words(kind, pairs, gone, word):
    assert studies._word(kind, pairs, *gone) == word


def test_runs_of_other_lengths_are_not_averaged(runs, tmp_path):
    write(tmp_path / "designs" / "preact20" / "3", (0.5, 0.6, 0.7))
    with pytest.raises(ValueError, match="designs/preact20 have different numbers of epochs"):
        studies.draw(runs, tmp_path / "pictures")


def test_the_picture_shows_means_of_the_seeds(runs, tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(studies, "write", lambda figure, path, title: figures.append(figure))
    assert studies.draw(runs, tmp_path / "pictures") == [tmp_path / "pictures" / "designs.png"]
    loss, accuracy = figures[0].axes
    assert loss.get_legend() is not None and accuracy.get_legend() is None  # one for both
    assert [line.get_label() for line in loss.lines] == [
        "resnet20, 3 seeds",
        "highway20, 3 seeds",
        "preact20, 2 seeds",
        "postact20_zerobn, 3 seeds",
    ]
    np.testing.assert_allclose(loss.lines[0].get_ydata(), [2.0, 1.0])
    np.testing.assert_allclose(accuracy.lines[1].get_ydata(), [50.0, 100 * (0.91 + 0.92 + 0.935) / 3])
    band = accuracy.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (50.0, 92.0)


def test_without_runs_there_is_no_section(tmp_path):
    assert studies.sections(tmp_path) == [] and studies.draw(tmp_path, tmp_path / "pictures") == []


def test_claims_name_networks_of_their_study():
    for comparison in studies.COMPARISONS:
        names = {net for claim in comparison.claims for net in (claim.first, claim.second)}
        assert names <= set(comparison.study.nets) and all(name in RECIPES for name in names)


def test_rates_at_an_end_of_the_grid_are_told(tmp_path):
    study = studies.DESIGNS.study
    accuracies = {"resnet20": (0.5, 0.7, 0.6), "highway20": (0.5, 0.6, 0.7), "preact20": (0.7, 0.6, 0.5)}
    for net, values in accuracies.items():
        for (rate, folder), value in zip(study.rate_folders(net, tmp_path).items(), values, strict=True):
            folder.mkdir(parents=True)
            (folder / "result.json").write_text(json.dumps({"mean": value}))
            assert study.known_rate(net, tmp_path) is None or rate == study.rates[-1]
    assert [study.known_rate(net, tmp_path) for net in accuracies] == [study.rates[1], study.rates[2], study.rates[0]]
    assert studies._ends(study, tmp_path) == [
        f"The chosen rate of `highway20` is the highest tried, {study.rates[2]}; a higher one may be better.",
        f"The chosen rate of `preact20` is the lowest tried, {study.rates[0]}; a lower one may be better.",
    ]

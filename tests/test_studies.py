"""docs/results.md's comparisons: table and picture of made-up runs, counted by hand."""

import json
from dataclasses import replace

import numpy as np
import pytest

from training.study import difference
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


def test_differences_have_an_interval(runs):
    lines = studies.sections(runs)
    # 1, 1 and 1.5 points: mean 1.17, deviation 0.289; half of the interval is 4.303 * 0.289 / sqrt(3) = 0.717
    row = "| highway20 | - | 3 | 0 | 1.0000 ± 0.0000 | 92.17 ± 1.26 | 1.17 ± 0.29 (0.45 to 1.88) |"
    assert row in "\n".join(lines)
    assert difference([2.0]) == "2.00"
    sizes = next(line for line in lines if line.startswith("Trainable parameters"))
    assert "`resnet20` 269,722 (1.00)" in sizes and "`preact20` 286,378 (1.06)" in sizes  # as Keras counts
    assert lines[-1].endswith("jax, float32, a core, commit `0123456789ab`. Logs: `zoo/runs/designs`.")


@pytest.mark.slow
def test_forms_of_the_block_have_a_section_if_another_than_the_base_is_trained(runs, tmp_path):
    assert not any("Forms of `highway20`" in line for line in studies.sections(runs))
    for seed, accuracy in enumerate((0.90, 0.905, 0.925), start=1):
        write(tmp_path / "designs" / "highway20_channel" / str(seed), (0.5, accuracy))
    lines = studies.sections(runs)
    lines = lines[next(i for i, line in enumerate(lines) if "Forms of `highway20`" in line) :]
    # 0.90 - 0.91, 0.905 - 0.92 and 0.925 - 0.935: mean -1.17, deviation 0.289, as above
    assert "| -1.17 ± 0.29 (-1.88 to -0.45) |" in "\n".join(lines)
    (sizes,) = (line for line in lines if line.startswith("Trainable parameters"))
    assert "`highway20_channel` 266,748 (1.00)" in sizes and "`highway20_tied` 263,547 (0.99)" in sizes


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


def test_losses_after_some_epochs(tmp_path):
    logged = "epoch,train_loss,test_loss,test_accuracy\n" + "".join(f"{e},{9 / e},{8 / e},0.8\n" for e in range(1, 21))
    write(tmp_path / "imagenette" / "highway50_imagenette_a3" / "1", (0.5, 0.8))
    log = tmp_path / "imagenette" / "highway50_imagenette_a3" / "1" / "log.csv"
    log.write_text(logged)
    lines = studies.sections(tmp_path)
    assert any("one seed: no spread and no interval, so nothing is decided." in line for line in lines)
    rows = [line for line in lines if line.startswith("| `highway50_imagenette_a3`")]
    assert rows == [
        f"| `highway50_imagenette_a3` | {epoch} | {9 / epoch:.4f} | {8 / epoch:.4f} | 80.00 |" for epoch in (1, 5, 10)
    ]
    log.write_text("".join(logged.splitlines(keepends=True)[:8]))
    with pytest.raises(ValueError, match="has no epoch 10"):
        studies.sections(tmp_path)


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

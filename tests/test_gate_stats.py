"""Gates during training: NumPy gives the recorded values from the traces, at the right steps, on any strategy."""

import csv

import keras
import numpy as np
import pytest
from miniatures import batch, miniature

from keras_highway.analysis import GateRow, GateStats, trace


def fitted(stats, model=None):
    """A miniature after two epochs of three steps of `fit`, with the callback."""
    model = miniature("dense_stack") if model is None else model
    model.compile(keras.optimizers.SGD(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = batch(model, 12), np.arange(12) % 10
    model.fit(x, y, batch_size=4, epochs=2, callbacks=[stats], verbose=0)
    return model


def read(folder) -> list[GateRow]:
    with (folder / "gates.csv").open(newline="") as file:
        return [
            GateRow(int(r["epoch"]), int(r["step"]), r["block"], *(float(r[k]) for k in GateRow._fields[3:]))
            for r in csv.DictReader(file)
        ]


def rows_of(model, x, epoch, step) -> list[GateRow]:
    """The rows by NumPy, from a trace."""
    rows = []
    for name, entry in trace(model, x).items():
        t = entry.t.astype("float64")
        rows.append(GateRow(epoch, step, name, t.mean(), t.var(), ((t < 0.01) | (t > 0.99)).mean(), (t < 0.01).mean()))
    return rows


def agree(rows, others, atol=2e-6):
    assert [row[:3] for row in rows] == [row[:3] for row in others]
    np.testing.assert_allclose([row[3:] for row in rows], [row[3:] for row in others], atol=atol)


@pytest.mark.parametrize("family", ["dense_stack", "conv_stack"])
def test_records_are_those_of_the_traces(tmp_path, family):
    model = miniature(family)
    x = batch(model, 5)
    stats = GateStats(x, tmp_path)
    before = rows_of(model, x, 0, 0)
    fitted(stats, model)
    after = rows_of(model, x, 2, 6)
    rows = read(tmp_path)
    assert rows == stats.rows
    agree(rows[: len(before)], before)
    agree(rows[-len(after) :], after)
    assert [(row.epoch, row.step) for row in rows if row.block == "stage1_block1"] == [(0, 0), (1, 3), (2, 6)]
    means = {row.step: row.mean for row in rows if row.block == "stage1_block1"}
    assert len(set(means.values())) == 3  # the net learns, and each record is of its time


def test_saturated_gates_are_counted_on_both_sides(tmp_path):
    model = miniature("dense_stack", gating="full")
    block = model.get_layer("stage1_block1")
    block.transform_gate.kernel.assign(np.zeros(block.transform_gate.kernel.shape))
    block.transform_gate.bias.assign([-5.0, -4.0, 0.0, 4.0, 5.0, 6.0])  # sigmoid(±4) is 0.018 and 0.982: not saturated
    stats = GateStats(batch(model, 3), tmp_path, blocks="stage1_block1", tensorboard=False)
    stats.set_model(model)
    (row,) = stats.record(4, 70)
    assert row[:3] == (4, 70, "stage1_block1")
    assert row.saturated == pytest.approx(3 / 6) and row.shut == pytest.approx(1 / 6)
    assert read(tmp_path) == [row] and not list(tmp_path.glob("events*"))


@pytest.mark.slow
def test_training_is_the_same_with_and_without(tmp_path):
    models = []
    for with_stats in (False, True):
        keras.utils.set_random_seed(3)  # of the weights, and of the order of the samples
        model = miniature("dense_stack")
        x = batch(model, 2)
        models.append(fitted(GateStats(x, tmp_path) if with_stats else keras.callbacks.Callback(), model))
    for a, b in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_resumed_run_appends_to_its_file_and_another_replaces_it(tmp_path):
    x = batch(miniature("dense_stack"), 2)
    for kwargs, records in (({}, 3), ({"append": True}, 5), ({"append": True}, 7), ({}, 3)):
        stats = GateStats(x, tmp_path, tensorboard=False, **kwargs)
        fitted(stats)
        rows = read(tmp_path)
        assert len(rows) == 3 * records and rows[-len(stats.rows) :] == stats.rows


def test_wrong_arguments_are_refused_before_training(tmp_path):
    model = miniature("dense_stack")
    x = batch(model, 2)
    for stats, net, message in (
        (GateStats(x, tmp_path), miniature("dense_stack", gating="residual"), "learned"),
        (GateStats(x, tmp_path, blocks=["stage1_blok1"]), model, "Did you mean 'stage1_block1'"),
        (GateStats(x[0], tmp_path), model, "batch axis"),
    ):
        with pytest.raises(ValueError, match=message):
            stats.set_model(net)
    with pytest.raises(ValueError, match="set_model"):
        GateStats(x, tmp_path).record(0, 0)


def test_tensorboard_reads_what_is_written(tmp_path):
    tf = pytest.importorskip("tensorflow")
    stats = GateStats(batch(miniature("dense_stack"), 2), tmp_path)
    fitted(stats)
    files = map(str, tmp_path.glob("events.out.tfevents.*"))
    events = [event for file in files for event in tf.compat.v1.train.summary_iterator(file) if event.summary.value]
    actual = {(event.step, value.tag): value.simple_value for event in events for value in event.summary.value}
    expected = {
        (row.step, f"gates_{name}/{row.block}"): getattr(row, name)
        for row in stats.rows
        for name in ("mean", "variance", "saturated", "shut")
    }
    assert actual.keys() == expected.keys()
    assert all(actual[key] == np.float32(expected[key]) for key in expected)

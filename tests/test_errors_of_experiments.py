"""Experiments end as `train` does where something is wrong: a line that names it, and exit code 2; no traceback."""

import pytest

from training import search, study


@pytest.mark.parametrize(
    ("main", "arguments", "message"),
    [
        (study.main, ["designs", "--data", "{none}"], "No file {none}/cifar10.npz"),
        (study.main, ["block_forms", "--data", "{none}"], "No file {none}/cifar10.npz"),
        (study.main, ["imagenette_pair", "--data", "{none}"], "No folder {none}/train"),
        (search.main, ["figure1", "--data", "{none}", "--rungs", "1x1"], "No file {none}/mnist.npz"),
        (study.main, ["designs", "--set", "precision=float8"], "`precision` must be one of float32, mixed_bfloat16"),
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

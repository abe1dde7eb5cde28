"""Experiments end as `train` does where something is wrong: a line that names it, and exit code 2; no traceback."""

import pytest

from training import block_forms, designs, fitnets, imagenette, search


@pytest.mark.parametrize(
    ("main", "arguments", "message"),
    [
        (designs.main, ["--data", "{none}"], "No file {none}/cifar10.npz"),
        (block_forms.main, ["--data", "{none}"], "No file {none}/cifar10.npz"),
        (fitnets.main, ["--data", "{none}"], "No file {none}/cifar10.npz"),
        (imagenette.main, ["pair", "--data", "{none}"], "No folder {none}/train"),
        (search.main, ["figure1", "--data", "{none}", "--rungs", "1x1"], "No file {none}/mnist.npz"),
        (designs.main, ["--set", "precision=float8"], "`precision` must be one of float32, mixed_bfloat16"),
        (imagenette.main, ["uie", "--set", "seed=3"], "`seed` is what a study sets itself: see --seeds."),
    ],
)
def test_what_is_wrong_is_named(main, arguments, message, tmp_path, capsys):
    none = str(tmp_path / "none")
    with pytest.raises(SystemExit) as ended:
        main([*(word.format(none=none) for word in arguments), "--out", str(tmp_path / "out")])
    error = capsys.readouterr().err
    assert ended.value.code == 2 and error.startswith(f"error: {message.format(none=none)}")
    assert len(error.splitlines()) == 1

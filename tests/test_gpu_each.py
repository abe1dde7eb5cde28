"""`supervise --gpu-each`: a GPU for each process, or a sentence before any of them starts."""

import os

import pytest

from keras_highway.training.distributed import supervise


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Makes a machine whose `nvidia-smi` prints a given text."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def write_smi(text, code=0):
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\ncat << END\n{text}\nEND\nexit {code}\n")
        os.chmod(tmp_path / "nvidia-smi", 0o755)

    return write_smi


TWO = "GPU 0: NVIDIA H100 (UUID: GPU-1)\n  MIG 1g.10gb Device 0: (UUID: MIG-1)\nGPU 1: NVIDIA H100 (UUID: GPU-2)"


def test_each_process_sees_one(machine):
    machine(TWO)
    assert supervise.gpu_each(2, None) == ["0", "1"] and supervise.gpu_each(1, None) == ["0"]
    assert supervise.gpu_each(2, "4,5,7") == ["4", "5"]


@pytest.mark.parametrize(
    ("listing", "visible", "received"),
    [
        (
            (TWO,),
            None,
            "--workers 3, and nvidia-smi lists 2; if there are more, name them: CUDA_VISIBLE_DEVICES=0,1,...",
        ),
        (("NVIDIA-SMI has failed", 9), None, "--workers 3, and nvidia-smi lists 0;"),
        (None, None, "--workers 3, and nvidia-smi lists 0;"),
        ((TWO,), "4,5", "--workers 3, and CUDA_VISIBLE_DEVICES='4,5' names 2"),
        ((TWO,), "", "--workers 3, and CUDA_VISIBLE_DEVICES='' names 0"),
    ],
)
def test_more_processes_than_gpus_are_one_sentence(machine, monkeypatch, capsys, listing, visible, received):
    if listing:
        machine(*listing)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with pytest.raises(SystemExit) as ended:
        supervise.main(["--workers", "3", "--gpu-each", "--", "mnist10_w16"])
    assert ended.value.code == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert f"--gpu-each needs a GPU for each process. Received: {received}" in line

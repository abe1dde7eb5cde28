"""Makes the golden logits again: `goldens/<net>.npz` next to this file.

The tests compare our networks with these files and need no PyTorch. To make
the files again, from the root of the repository:

    python3.11 -m venv .torchenv
    .torchenv/bin/pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu
    .torchenv/bin/pip install --no-deps torchvision==0.28.0 timm==1.0.31
    .torchenv/bin/pip install numpy pyyaml huggingface_hub safetensors pillow
    .torchenv/bin/python tests/oracles/make_goldens.py            # all six, a minute on two cores
    .torchenv/bin/python tests/oracles/make_goldens.py resnet50   # or some

resnet50, resnet101 and resnet152 are timm's; resnet110, highway110 and
highway111 come from `torch_cifar.py`. Each runs in evaluation mode with
the weights, BN statistics and images of `seeded_state.py`. A file holds:

- `state`: text, a line of name and shape for each tensor of the state dict;
- `logits_64`, ...: float32 `(batch, classes)` for images of that size;
- `bn`: (eps, momentum) of the net's batch normalizations;
- `init_fan_in`, `init_fan_out`: variance x fan of the net's own initial
  convolution kernels (2 for He's initialization by that fan);
- `versions`: of what made the file.
"""

import sys
import types
from pathlib import Path

import numpy as np
import torch

# torchvision's operators are not in a CPU wheel installed without dependencies; without this its import fails.
sys.modules["torchvision._meta_registrations"] = types.ModuleType("stub")

import timm  # noqa: E402
import torch_cifar  # noqa: E402
from seeded_state import seeded_images, seeded_state  # noqa: E402
from torch import nn  # noqa: E402

GOLDENS = Path(__file__).parent / "goldens"
IMAGENET = ("resnet50", "resnet101", "resnet152")
CIFAR = ("resnet110", "highway110", "highway111")


def make(name):
    """Writes the golden file of one net."""
    torch.manual_seed(0)  # of the net's own initialization, which only init_fan_in and init_fan_out see
    imagenet = name in IMAGENET
    net = timm.create_model(name) if imagenet else getattr(torch_cifar, name)()
    golden = {"bn": bn_constants(net), **init_variances(net)}
    shapes = [(k, tuple(v.shape)) for k, v in net.state_dict().items() if not k.endswith("num_batches_tracked")]
    golden["state"] = np.array("\n".join(f"{k} {'x'.join(map(str, s))}" for k, s in sorted(shapes)))
    net.load_state_dict({k: torch.from_numpy(v) for k, v in seeded_state(shapes).items()}, strict=True)
    net.eval()
    # 97 is not a multiple of any stride: it tells PyTorch's padding from padding="same".
    for batch, size in ((2, 64), (2, 97)) if imagenet else ((4, 32), (2, 39)):
        images = torch.from_numpy(seeded_images(batch, size).transpose(0, 3, 1, 2).copy())
        with torch.no_grad():
            golden[f"logits_{size}"] = net(images).numpy()
    golden["versions"] = np.array(f"torch {torch.__version__}, timm {timm.__version__}, numpy {np.__version__}")
    np.savez_compressed(GOLDENS / f"{name}.npz", **golden)
    report(name, golden)


def bn_constants(net):
    """The one pair (eps, momentum) of all batch normalizations."""
    (pair,) = {(m.eps, m.momentum) for m in net.modules() if isinstance(m, nn.BatchNorm2d)}
    return np.array(pair)


def init_variances(net):
    """Variance x fan of the convolution kernels, pooled over all of them."""
    kernels = [m.weight.detach().numpy() for m in net.modules() if isinstance(m, nn.Conv2d)]
    return {
        "init_fan_in": np.concatenate([np.ravel(k) * np.sqrt(k[0].size) for k in kernels]).var(),
        "init_fan_out": np.concatenate([np.ravel(k) * np.sqrt(k[:, 0].size) for k in kernels]).var(),
    }


def report(name, golden):
    for key, value in golden.items():
        if key.startswith("logits"):
            between = value.std(axis=0).mean()
            print(f"{name:10} {key:9} std {value.std():.3f}, between images {between:.3f}, max {abs(value).max():.2f}")


if __name__ == "__main__":
    GOLDENS.mkdir(exist_ok=True)
    for net_name in sys.argv[1:] or (*IMAGENET, *CIFAR):
        make(net_name)

"""A process of the strategy tests: `python -m tests.strategy_worker OUT STRATEGY [DEVICES]` trains three tiny nets.

`bn`: batch normalization, crops, mirroring, L2 on all parameters, clipping,
moving average, a test set that does not divide. `rsb`: the procedure of "ResNet
strikes back" in float32, that is LAMB, RandAugment, Mixup and CutMix in
micro-batches, repeated augmentation and stochastic depth. `muon`: two image
sizes, a whitened stem and Muon. Prints nothing that a test reads: the runs'
folders are the result.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from keras_highway.training.recipes import RECIPES, tiny

_NET = (("blocks", (1, 1)), ("widths", (4, 6)), ("stem_width", 4))
BN = replace(
    tiny(RECIPES["highway110"]),
    overrides=_NET,
    clip_norm=0.5,
    ema=0.9,
    learning_rate=0.05,
    train_images=36,
    test_images=13,
)
RSB = replace(
    tiny(RECIPES["highway50_a2"]),
    overrides=(("input_shape", (64, 64, 3)), ("blocks", (2,)), ("widths", (4,)), ("stem_width", 4),
               ("stochastic_depth", 0.5)),
    precision="float32",
    batch_size=16,
    train_images=36,
    test_images=13,
)  # fmt: skip
MUON = replace(
    tiny(RECIPES["cifar10_19layer_fast"]),
    learning_rate=0.01,
    precision="float32",
    train_images=36,
    test_images=13,
    dropout_from=2 / 3,
)


def main(out: str, strategy: str, devices: str = "1") -> None:
    """Trains the nets under a strategy."""
    # Without XLA's optimizations: tiny nets spend their time in its compiler.
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0"
    if os.environ.get("KERAS_BACKEND") != "jax" and devices != "1":
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * int(devices))

    from keras_highway.training.distributed.strategy import make_strategy
    from keras_highway.training.loop import train

    made = make_strategy(strategy)
    for name, recipe in {"bn": BN, "rsb": RSB, "muon": MUON}.items():
        train(recipe, None, Path(out) / name, made)
    if strategy == "mirrored":
        _draw_masks(made, Path(out) / "masks.npz")


def _draw_masks(strategy, path) -> None:
    """Saves which units a dropout layer keeps on either replica."""
    import keras
    import numpy as np

    with strategy.scope():
        net = keras.Sequential([keras.Input((64,)), keras.layers.Dropout(0.5, seed=0)])
    strategy.prepare(SimpleNamespace(net=net))
    ones = np.ones((2, 64), "float32")

    def kept(batch):
        own = (net(batch[0], training=True) != 0)[0]
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tf.one_hot(replica, 2)[:, None] * tf.cast(own, "float32")[None]

    import tensorflow as tf

    masks = strategy.run(kept, strategy.put((ones,))).numpy()
    np.savez(path, replica_0=masks[0], replica_1=masks[1])


if __name__ == "__main__":
    main(*sys.argv[1:])

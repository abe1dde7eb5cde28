"""A process of the GateStats test: `python -m tests.gate_stats_worker OUT` fits a small net on two mirrored devices.

It has batch normalization, whose statistics each replica has of its own. The
records of the first fit are made inside the strategy's scope, those of the
second outside of it; the weights between the two are saved.
"""

import sys
from pathlib import Path


def main(out: str) -> None:
    """Fits twice for two epochs of three steps."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

    import keras
    import numpy as np

    from keras_highway.analysis import GateStats
    from tests.miniatures import batch, miniature

    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    with strategy.scope():
        model = miniature("conv_net", blocks=(1, 1))
        model.compile(keras.optimizers.SGD(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        x, y = batch(model, 12), np.arange(12) % 10
        options = {"batch_size": 4, "verbose": 0, "epochs": 2}
        model.fit(x, y, callbacks=[GateStats(x[:5], Path(out) / "inside")], **options)
        np.savez(Path(out) / "weights.npz", *model.get_weights())
    model.fit(x, y, callbacks=[GateStats(x[:5], Path(out) / "outside", tensorboard=False)], **options)


if __name__ == "__main__":
    main(*sys.argv[1:])

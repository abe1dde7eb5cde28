"""The convolutional highway nets of [TVDN] (MNIST, CIFAR), from a `ConvStackSpec`."""

import keras

from keras_highway.layers import HighwayConv2D
from keras_highway.layers.ungated import Conv2D
from keras_highway.specs import ConvStackSpec, block_options, stochastic_depth_rates


def body(spec: ConvStackSpec, x, dtype=None):
    """Apply stages and neck."""
    rates = iter(stochastic_depth_rates(spec, sum(len(stage.highways) for stage in spec.stages)))
    for number, stage in enumerate(spec.stages, start=1):
        x = _stage(spec, stage, number, rates, x, dtype)
    if spec.neck_width is not None:
        x = _plain(spec.neck_width, 1, "same", None, "neck", dtype)(x)
    return x


def head_kernel_initializer(spec: ConvStackSpec):
    """Return initializer of the classifier."""
    return normal(spec.head_init_std)


def _stage(spec, stage, number, rates, x, dtype):
    # Dropout and pooling act on the skip stream and keep its precision.
    stream = dtype if number == 1 else spec.skip_dtype
    if stage.dropout:
        rate = spec.dropout_scale * stage.dropout
        x = keras.layers.Dropout(rate, name=f"stage{number}_dropout", dtype=stream)(x)
    if stage.filters is not None:
        name, std = ("stem", spec.stem_init_std) if number == 1 else (f"stage{number}_transition", None)
        x = _plain(stage.filters, stage.kernel, stage.padding, std, name, dtype)(x)
    for index, kernel in enumerate(stage.highways, start=1):
        x = HighwayConv2D(
            kernel_size=kernel,
            kernel_initializer=normal(None),
            stochastic_depth=next(rates),
            name=f"stage{number}_block{index}",
            dtype=dtype,
            **block_options(spec),
        )(x)
    if stage.pool is not None:
        size, stride = stage.pool
        x = keras.layers.MaxPooling2D(
            size, strides=stride, padding="same", name=f"stage{number}_pool", dtype=spec.skip_dtype
        )(x)
    return x


def _plain(filters, kernel, padding, std, name, dtype):
    initializer = normal(std)
    return Conv2D(
        filters, kernel, 1, padding, activation="relu", kernel_initializer=initializer, name=name, dtype=dtype
    )


def normal(std):
    """Return a normal initializer: He's, the "xavier" of the authors' fork of Caffe, if `std` is None."""
    if std is None:
        return keras.initializers.VarianceScaling(2.0, "fan_in", "untruncated_normal")
    return keras.initializers.RandomNormal(stddev=std)

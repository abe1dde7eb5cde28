"""Stem and stages of the ImageNet and CIFAR 110-layer nets, from a `ConvNetSpec`."""

import keras

from keras_highway.layers import BasicBlock, BottleneckBlock, Branch
from keras_highway.models.gate_bias import initial_gate_bias
from keras_highway.models.tied_gate import tied_gate
from keras_highway.specs import ConvNetSpec, stochastic_depth_rates

_BLOCKS = {"basic": BasicBlock, "bottleneck": BottleneckBlock}


def body(spec: ConvNetSpec, x, dtype=None):
    """Applies stem, stages and neck.

    Args:
        spec: What to build.
        x: Keras tensor, `(batch, height, width, channels)`.
        dtype: Dtype policy of the layers.

    Returns:
        A Keras tensor, `(batch, height / 32, width / 32, features)` for the
        ImageNet stem and four stages.
    """
    x = _stem(spec, x, dtype)
    rates = iter(stochastic_depth_rates(spec, sum(spec.blocks)))
    for stage, (depth, width) in enumerate(zip(spec.blocks, spec.widths, strict=True), start=1):
        shared_gate = None
        for index in range(1, depth + 1):
            stride = 2 if index == 1 and stage > 1 else 1
            tied = spec.gate == "tied" and index > 1
            block = _block(spec, width, stride, "tied" if tied else _own_gate(spec), next(rates))(
                name=f"stage{stage}_block{index}", dtype=dtype
            )
            if tied:
                shared_gate = shared_gate or _shared_gate(spec, block, stage, dtype)
                x = block(x, gate=shared_gate(x))
            else:
                x = block(x)
    if spec.neck_width is not None:
        x = _branch(spec, spec.neck_width, 3, 1, "neck", dtype)(x)
    return x


def head_kernel_initializer(spec: ConvNetSpec):
    """Initializer of the classifier: He-normal for the CIFAR nets [torch], Keras's default for ImageNet."""
    return _he_normal(spec) if spec.stem == "cifar" else "glorot_uniform"


def _stem(spec, x, dtype):
    if spec.stem == "cifar":
        return _branch(spec, spec.stem_width, 3, 1, "stem", dtype)(x)
    x = _branch(spec, spec.stem_width, 7, 2, "stem", dtype)(x)
    x = keras.layers.ZeroPadding2D(1, name="stem_pad", dtype=dtype)(x)  # after a ReLU, 0 is -inf to a max-pool
    return keras.layers.MaxPooling2D(3, strides=2, name="stem_pool", dtype=dtype)(x)


def _branch(spec, width, kernel, stride, name, dtype):
    return Branch(
        (width,),
        (kernel,),
        (stride,),
        batch_norm=spec.batch_norm,
        activation="relu",
        kernel_initializer=_he_normal(spec),
        name=name,
        dtype=dtype,
    )


def _own_gate(spec):
    """Tied gates are shared by the blocks of equal shape; a stage's first block has a gate of its own."""
    return "same" if spec.gate == "tied" else spec.gate


def _block(spec, width, stride, gate, rate):
    """Returns a function (name, dtype) -> block."""

    def make(name, dtype):
        return _BLOCKS[spec.block](
            width,
            stride=stride,
            gating=spec.gating,
            gate_bias=initial_gate_bias(spec),
            gate=gate,
            gate_rank=spec.gate_rank if gate == "low_rank" else None,
            post_activation=spec.post_activation,
            final_relu=spec.final_relu,
            zero_init=spec.zero_init,
            batch_norm=spec.batch_norm,
            projection=spec.projection,
            kernel_initializer=_he_normal(spec),
            skip_dtype=spec.skip_dtype,
            stochastic_depth=rate,
            name=name,
            dtype=dtype,
        )

    return make


def _shared_gate(spec, block, stage, dtype):
    """Returns a function from a block's input to the logits of the stage's tied gates."""
    filters, kernels, strides = block.shape_of_branch()

    def make(name, bias):
        return Branch(
            filters,
            kernels,
            strides,
            batch_norm=spec.batch_norm,
            final_bias=bias,
            kernel_initializer=_he_normal(spec),
            name=name,
            dtype=dtype,
        )

    return tied_gate(spec, stage, make)


def _he_normal(spec):
    return keras.initializers.VarianceScaling(2.0, mode=spec.kernel_init, distribution="untruncated_normal")

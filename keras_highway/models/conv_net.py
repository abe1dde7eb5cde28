"""Stem and stages of the ImageNet and CIFAR 110-layer nets, from a `ConvNetSpec`."""

import keras

from keras_highway.layers import BasicBlock, BottleneckBlock, Branch, SharedKernels
from keras_highway.layers.blocks import channel_axis
from keras_highway.specs import ConvNetSpec, initial_gate_bias, stochastic_depth_rates, tied_gate

_BLOCKS = {"basic": BasicBlock, "bottleneck": BottleneckBlock}


def body(spec: ConvNetSpec, x, dtype=None):
    """Apply stem, stages and neck."""
    x = _stem(spec, x, dtype)
    rates = iter(stochastic_depth_rates(spec, sum(spec.blocks)))
    for stage in range(1, len(spec.blocks) + 1):
        x = _stage(spec, stage, rates, x, dtype)
    if spec.neck_width is not None:
        x = _branch(spec, spec.neck_width, 3, 1, "neck", dtype)(x)
    return x


def head_kernel_initializer(spec: ConvNetSpec):
    """Return initializer of the classifier: He-normal for the CIFAR nets [torch], Keras's default for ImageNet."""
    return _he_normal(spec) if spec.stem == "cifar" else "glorot_uniform"


def _stage(spec, stage, rates, x, dtype):
    """Apply the blocks of a stage, and makes what they share: gates, kernels of transforms."""
    width, gate, kernels = spec.widths[stage - 1], None, None
    for index in range(1, spec.blocks[stage - 1] + 1):
        stride = 2 if index == 1 and stage > 1 else 1
        tied = spec.gate == "tied" and index > 1
        shares = spec.shared_transforms and not _is_transition(spec, x, width, stride)
        block = _block(spec, width, stride, "tied" if tied else _own_gate(spec), next(rates), shares)(
            name=f"stage{stage}_block{index}", dtype=dtype
        )
        inputs = {}
        if tied:
            gate = gate or _shared_gate(spec, block, stage, dtype)
            inputs["gate"] = gate(x)
        if shares:
            kernels = kernels or _shared_kernels(spec, block, stage, dtype)(x)
            inputs["kernels"] = kernels
        x = block(x, **inputs)
    return x


def _is_transition(spec, x, width, stride) -> bool:
    axis = channel_axis(keras.config.image_data_format())
    return stride != 1 or x.shape[axis] != _BLOCKS[spec.block](width).output_filters


def _shared_kernels(spec, block, stage, dtype):
    filters, kernel_sizes, _ = block.shape_of_branch()
    return SharedKernels(
        filters, kernel_sizes, kernel_initializer=_he_normal(spec), name=f"stage{stage}_transform", dtype=dtype
    )


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


def _block(spec, width, stride, gate, rate, shares):
    """Return a function (name, dtype) -> block."""

    def make(name, dtype):
        return _BLOCKS[spec.block](
            width,
            stride=stride,
            gating=spec.gating,
            gate_bias=initial_gate_bias(spec),
            gate=gate,
            gate_rank=spec.gate_rank,
            post_activation=spec.post_activation,
            final_relu=spec.final_relu,
            zero_init=spec.zero_init,
            batch_norm=spec.batch_norm,
            projection=spec.projection,
            kernel_initializer=_he_normal(spec),
            skip_dtype=spec.skip_dtype,
            stochastic_depth=rate,
            remat=spec.remat,
            shared_transform=shares,
            name=name,
            dtype=dtype,
        )

    return make


def _shared_gate(spec, block, stage, dtype):
    """Return a function from a block's input to the logits of the stage's tied gates.

    They have biases, not batch normalization: its moving averages would be those of no block, a mixture of all that
    share the gate.
    """
    filters, kernels, strides = block.shape_of_branch()

    def make(name, bias):
        return Branch(
            filters,
            kernels,
            strides,
            batch_norm=False,
            final_bias=bias,
            kernel_initializer=_he_normal(spec),
            name=name,
            dtype=dtype,
        )

    return tied_gate(spec, stage, make)


def _he_normal(spec):
    return keras.initializers.VarianceScaling(2.0, mode=spec.kernel_init, distribution="untruncated_normal")

"""Stem and stages of the ImageNet and CIFAR 110-layer nets, from a `ConvNetSpec`."""

import keras

from keras_highway.layers import BasicBlock, BottleneckBlock, Branch, SharedKernels
from keras_highway.layers.blocks import channel_axis
from keras_highway.specs import ConvNetSpec, block_options, stochastic_depth_rates, tied_gate

_BLOCKS = {"basic": BasicBlock, "bottleneck": BottleneckBlock}
# Fields of a spec that are arguments of its blocks.
_OF_NET = ("post_activation", "final_relu", "zero_init", "batch_norm", "projection")


def body(spec: ConvNetSpec, x, dtype=None):
    """Apply stem, stages and neck."""
    imagenet = spec.stem == "imagenet"
    x = _branch(spec, spec.stem_width, 7 if imagenet else 3, 2 if imagenet else 1, "stem", dtype)(x)
    if imagenet:
        x = keras.layers.ZeroPadding2D(1, name="stem_pad", dtype=dtype)(x)  # after a ReLU, 0 is -inf to a max-pool
        x = keras.layers.MaxPooling2D(3, strides=2, name="stem_pool", dtype=dtype)(x)
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
    """Apply the blocks of a stage, and make what they share: gates, kernels of transforms."""
    gate, kernels = None, None
    of_net = {**block_options(spec), **{field: getattr(spec, field) for field in _OF_NET}}
    axis = channel_axis(keras.config.image_data_format())
    for index in range(1, spec.blocks[stage - 1] + 1):
        stride = 2 if index == 1 and stage > 1 else 1
        width, block_class = spec.widths[stage - 1], _BLOCKS[spec.block]
        tied = spec.gate == "tied" and index > 1
        # In this order: a block that is made draws the seed of its initializer.
        shares = spec.shared_transforms and stride == 1 and x.shape[axis] == block_class(width).output_filters
        block = block_class(
            width,
            stride=stride,
            kernel_initializer=_he_normal(spec),
            stochastic_depth=next(rates),
            shared_transform=shares,
            name=f"stage{stage}_block{index}",
            dtype=dtype,
            # Tied gates are shared by blocks of one shape.
            **({**of_net, "gate": "same"} if spec.gate == "tied" and index == 1 else of_net),
        )
        inputs = {}
        if tied:
            gate = gate or _shared_gate(spec, block, stage, dtype)
            inputs["gate"] = gate(x)
        if shares:
            if kernels is None:
                filters, sizes, _ = block.shape_of_branch()
                shared = {"kernel_initializer": _he_normal(spec), "name": f"stage{stage}_transform", "dtype": dtype}
                kernels = SharedKernels(filters, sizes, **shared)(x)
            inputs["kernels"] = kernels
        x = block(x, **inputs)
    return x


def _branch(spec, width, kernel, stride, name, dtype):
    common = {"batch_norm": spec.batch_norm, "kernel_initializer": _he_normal(spec), "dtype": dtype}
    return Branch((width,), (kernel,), (stride,), activation="relu", name=name, **common)


def _shared_gate(spec, block, stage, dtype):
    """Return a function from a block's input to the logits of the stage's tied gates.

    The gates have biases, not batch normalization: its moving averages would mix all blocks that share the gate.
    """
    filters, kernels, strides = block.shape_of_branch()

    def make(name, bias):
        common = {"batch_norm": False, "kernel_initializer": _he_normal(spec), "dtype": dtype}
        return Branch(filters, kernels, strides, final_bias=bias, name=name, **common)

    return tied_gate(spec, stage, make)


def _he_normal(spec):
    return keras.initializers.VarianceScaling(2.0, mode=spec.kernel_init, distribution="untruncated_normal")

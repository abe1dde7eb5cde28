"""Fully connected nets of any depth [TVDN, 3.1], from a `DenseStackSpec`."""

import functools

import keras

from keras_highway.layers import HighwayDense, HighwayDenseStack
from keras_highway.layers.ungated import Dense
from keras_highway.specs import DenseStackSpec, block_options, initial_gate_bias, stochastic_depth_rates, tied_gate


def body(spec: DenseStackSpec, x, dtype=None):
    """Apply the plain first layer and the highway layers."""
    x = keras.layers.Flatten(name="flatten", dtype=dtype)(x)
    x = Dense(spec.units, spec.activation, kernel_initializer=_initializer(spec), name="stem", dtype=dtype)(x)
    if spec.scanned:
        return _scanned(spec, x, dtype)
    gate = tied_gate(spec, 1, functools.partial(_gate, spec, dtype)) if spec.gate == "tied" else None
    for index, rate in enumerate(stochastic_depth_rates(spec, spec.depth - 1), start=1):
        block = HighwayDense(
            activation=spec.activation,
            kernel_initializer=_initializer(spec),
            stochastic_depth=rate,
            name=f"stage1_block{index}",
            dtype=dtype,
            **block_options(spec),
        )
        x = block(x) if gate is None else block(x, gate=gate(x))
    return x


def _gate(spec, dtype, name, bias):
    """Return a gate that all layers share [Lu and Renals 2016], built like the gate of a `HighwayDense`."""
    return Dense(
        spec.units,
        kernel_initializer=_initializer(spec),
        bias_initializer=keras.initializers.Constant(bias),
        name=name,
        dtype=dtype,
    )


def _scanned(spec, x, dtype):
    if spec.gate not in HighwayDenseStack.gates or spec.stochastic_depth or spec.remat:
        raise ValueError(
            f"The layers of {spec.name!r} run in a scan, which is for gate='same' or 'tied' without stochastic depth "
            "and without remat: pass scanned=False. "
            f"Received: gate={spec.gate!r}, stochastic_depth={spec.stochastic_depth}, remat={spec.remat}"
        )
    if spec.depth == 1:
        return x
    return HighwayDenseStack(
        spec.depth - 1,
        gating=spec.gating,
        activation=spec.activation,
        gate_bias=initial_gate_bias(spec),
        gate=spec.gate,
        kernel_initializer=_initializer(spec),
        skip_dtype=spec.skip_dtype,
        name="stage1",
        dtype=dtype,
    )(x)


def head_kernel_initializer(spec: DenseStackSpec):
    """Return initializer of the classifier."""
    return keras.initializers.GlorotUniform()


def _initializer(spec):
    """Return normalized initialization [TVDN, 3.1]: He's for ReLU, Glorot's otherwise."""
    return keras.initializers.HeNormal() if spec.activation == "relu" else keras.initializers.GlorotUniform()

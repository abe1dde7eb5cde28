"""Arguments that a layer cannot follow are refused, not passed over."""

import numpy as np
import pytest
from contracts import array, to_numpy

from keras_highway.layers import Branch, HighwayConv2D, HighwayDense


@pytest.mark.parametrize("gate", ["channel", "tied"])
def test_a_kernel_size_of_gates_without_a_kernel(gate):
    with pytest.raises(ValueError, match="leave `gate_kernel_size` out"):
        HighwayConv2D(4, gate=gate, gate_kernel_size=7)
    assert HighwayConv2D(4, gate=gate).get_config()["gate_kernel_size"] is None


def test_a_pair_as_the_kernel_size_of_a_strided_convolution():
    with pytest.raises(ValueError, match="one number as its kernel size"):
        Branch((8,), ((3, 3),), (2,))
    assert Branch((8,), ((3, 1),), (1,)).compute_output_shape((None, 6, 6, 3)) == (None, 6, 6, 8)


def test_a_mask_of_stochastic_depth_has_the_rank_it_was_built_for():
    layer = HighwayDense(stochastic_depth=0.5)
    layer(array(2, 4))
    with pytest.raises(ValueError, match="expected ndim=2"):
        layer(array(2, 3, 4), training=True)


def test_channel_gates_serve_inputs_of_any_rank():
    layer = HighwayDense(gate="channel")
    x = array(2, 3, 4)
    together = to_numpy(layer(x))
    np.testing.assert_allclose(to_numpy(layer(x[:, 1])), together[:, 1], rtol=1e-5, atol=1e-6)

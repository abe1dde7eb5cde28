"""One row per named architecture. Rows hold numbers and words, never code."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from keras_highway.specs import CharLMSpec, ConvNetSpec, ConvStackSpec, ConvStage, DenseStackSpec, NetSpec
from keras_highway.tasks import IMAGES, Task

# --- ImageNet [BLOG, Evidence 3], [UIE, 5.1] ---------------------------------

_HIGHWAY50 = ConvNetSpec(
    name="highway50",
    block="bottleneck",
    blocks=(3, 4, 6, 3),
    widths=(48, 96, 192, 384),
    gating="coupled",
    gate_bias=-1.0,
    post_activation=True,
    zero_init=True,
    input_shape=(224, 224, 3),
    classes=1000,
    source="BLOG, Evidence 3; gate bias from UIE, 5.1",
    published_parameters=26_443_560,
    printed_parameters="26.4 M",
)
_RESNET50 = replace(
    _HIGHWAY50,
    name="resnet50",
    widths=(64, 128, 256, 512),
    gating="residual",
    source="BLOG, Evidence 3",
    published_parameters=25_557_032,
    printed_parameters="25.5 M",
)
_UIE = replace(
    _HIGHWAY50,
    name="highway50_uie",
    post_activation=False,
    zero_init=False,
    source="UIE, 5.1; widths and strides from BLOG's Highway50",
    published_parameters=None,
    printed_parameters="",
)
_UIE_RESIDUAL = "UIE, 5.1; the stride of a block in its 3x3, where He et al. 2015 have it in the first 1x1"
_IMAGENET = (
    _HIGHWAY50,
    replace(
        _HIGHWAY50,
        name="highway101",
        blocks=(3, 4, 23, 3),
        widths=(48, 96, 180, 384),
        published_parameters=44_229_192,
        printed_parameters="44.2 M",
    ),
    replace(
        _HIGHWAY50,
        name="highway152",
        blocks=(3, 8, 36, 3),
        widths=(48, 96, 180, 384),
        published_parameters=59_868_744,
        printed_parameters="59.9 M",
    ),
    _RESNET50,
    replace(
        _RESNET50, name="resnet101", blocks=(3, 4, 23, 3), published_parameters=44_549_160, printed_parameters="44.5 M"
    ),
    replace(
        _RESNET50, name="resnet152", blocks=(3, 8, 36, 3), published_parameters=60_192_808, printed_parameters="60.2 M"
    ),
    _UIE,
    replace(_UIE, name="highway50_uie_nobn", batch_norm=False),
    replace(_UIE, name="highway_full50_uie", final_relu=True),
    replace(_UIE, name="highway_full50_uie_nobn", final_relu=True, batch_norm=False),
    replace(
        _UIE,
        name="resnet50_uie",
        widths=(64, 128, 256, 512),
        gating="residual",
        post_activation=True,
        source=_UIE_RESIDUAL,
    ),
    replace(
        _UIE,
        name="resnet50_uie_nobn",
        widths=(64, 128, 256, 512),
        gating="residual",
        post_activation=True,
        batch_norm=False,
        source=_UIE_RESIDUAL,
    ),
)


# Highway nets trained on ImageNet today: a ResNet's widths, gates independent of the data that start at T = 0.1, and
# weights made of the ResNet's (`highway_from_resnet`), so that the net computes what the ResNet does.
_HIGHWAY_RESNETS = tuple(
    replace(
        row,
        name=f"highway_{row.name}",
        gating="coupled",
        gate="channel",
        gate_bias=-2.1972245773362196,  # the logit of 0.1
        baseline=row.name,
        source=f"ours: {row.name} [BLOG] as a highway net that computes the same function; gates after UIE, 5.1, one "
        "number per channel",
        published_parameters=None,
        printed_parameters="",
    )
    for row in _IMAGENET
    if row.name in ("resnet50", "resnet101", "resnet152")
)

# --- CIFAR-10, 110 layers [BLOG, Evidence 1 and "More Comparisons"] -----------

_RESNET110 = ConvNetSpec(
    name="resnet110",
    block="basic",
    blocks=(18, 18, 18),
    widths=(16, 32, 64),
    gating="residual",
    stem="cifar",
    stem_width=16,
    post_activation=True,
    projection="A",
    kernel_init="fan_in",
    source="BLOG, Evidence 1",
    published_parameters=1_727_962,
    printed_parameters="1.7 M",
)
_HIGHWAY110 = replace(
    _RESNET110,
    name="highway110",
    widths=(14, 28, 56),
    gating="coupled",
    gate_bias=-6.0,
    post_activation=False,
    final_relu=True,
    projection="B",
    published_parameters=2_649_918,
    printed_parameters="2,649,918",
)
_EXCLUSIVE = replace(
    _RESNET110,
    name="exclusive110",
    gating="coupled",
    gate="pointwise",
    gate_bias=-6.0,
    projection="B",
    source="BLOG, after He et al. 2016: ResNet110's widths; shortcut B, where He et al. use A",
    published_parameters=None,
    printed_parameters="",
)
_POSTACT = replace(
    _EXCLUSIVE,
    name="postact110",
    gate="same",
    widths=(14, 28, 56),
    source="BLOG, More Comparisons: postact T=2x(3x3), Highway110's widths",
)
_CIFAR110 = (
    _RESNET110,
    _HIGHWAY110,
    replace(
        _HIGHWAY110,
        name="highway111",
        widths=(12, 24, 48),
        neck_width=64,
        source="BLOG, Further Reducing Parameters; widths 12/24/48 (0.75 times); the text's 16/24/48 have 2.05 M",
        published_parameters=1_977_282,
        printed_parameters="1.97 M",
    ),
    _EXCLUSIVE,
    replace(
        _EXCLUSIVE,
        name="preact110",
        post_activation=False,
        final_relu=True,
        source="BLOG, More Comparisons: preact T=1x1, ResNet110's widths",
    ),
    _POSTACT,
    replace(_POSTACT, name="postact110_zerobn", zero_init=True, source=_POSTACT.source + ", zeroBN"),
)


def _of_20_layers(row: ConvNetSpec) -> ConvNetSpec:
    """Return a 110-layer row with three blocks per stage; narrow gated rows match resnet20's parameters."""
    return replace(
        row,
        name=row.name.replace("110", "20"),
        blocks=(3, 3, 3),
        widths={(14, 28, 56): (11, 22, 45)}.get(row.widths, row.widths),  # multiplier 0.71
        gate_bias="by_depth",  # -6 is the authors' for 110 layers
        source=f"{row.source}; here 20 layers" + ("" if row.widths == (16, 32, 64) else ", resnet20's parameters"),
        published_parameters=None,
        printed_parameters="",
    )


_CIFAR20 = tuple(_of_20_layers(row) for row in _CIFAR110 if row.name != "highway111")

# --- MNIST and CIFAR convolutional highway nets [TVDN, Tables 1-3] -------------

_MNIST10 = ConvStackSpec(
    name="mnist10_w16",
    stages=(
        ConvStage(filters=16, kernel=5, padding="valid", highways=(3, 3), pool=(3, 2), dropout=0.2),
        ConvStage(highways=(3, 3, 3), pool=(3, 2), dropout=0.3),
        ConvStage(highways=(3, 3, 3), pool=(2, 2), dropout=0.4),
    ),
    gate_bias=-1.0,
    input_shape=(28, 28, 1),
    min_size=12,
    head_pool="flatten",
    head_dropout=0.5,
    head_init_std=0.1,
    source="TVDN, Table 1",
    published_parameters=38_986,
    printed_parameters="39 K",
)


def _cifar_stages(widths, highways, kernels=(3,)) -> tuple[ConvStage, ...]:
    """Stages of a plain 3x3 convolution and `highways` highway layers each, kernels in turn."""
    rows = []
    for i, (width, n) in enumerate(zip(widths, highways, strict=True)):
        turn = tuple(kernels[j % len(kernels)] for j in range(n))
        pool = (2, 2) if i < len(widths) - 1 else None
        rows.append(ConvStage(filters=width, highways=turn, pool=pool, dropout=0.2))
    return tuple(rows)


_CIFAR19 = ConvStackSpec(
    name="cifar10_19layer",
    stages=_cifar_stages((32, 80, 128), (4, 5, 5)),
    neck_width=100,
    gate_bias=-2.0,
    head_dropout=0.2,
    stem_init_std=1.0,  # [caffe]: the prototxt's `value: 0.05` is ignored by Caffe's gaussian filler, whose std is 1
    head_init_std=0.05,
    source="TVDN, Table 3",
    published_parameters=2_256_838,
)
# FitNets: a max-pool of 8, a hidden layer of 500, the softmax. Their 500 are maxout units of two pieces: with these the
# published widths of FitNets A and B give 251 K and 2.55 M, where the papers print 250 K and 2.5 M.
_FITNET_HEAD = "gate bias by depth; FitNets' fully connected head, its 500 units with ReLU like the rest;"
_FITNET = replace(
    _CIFAR19, neck_width=None, head_pool="max", hidden_units=500, gate_bias="by_depth", published_parameters=None
)
_CONV_STACKS = (
    _MNIST10,
    replace(
        _MNIST10,
        name="mnist10_w32",
        stages=(replace(_MNIST10.stages[0], filters=32), *_MNIST10.stages[1:]),
        published_parameters=151_690,
        printed_parameters="151 K",
    ),
    _CIFAR19,
    replace(_CIFAR19, name="cifar100_19layer", classes=100, head_init_std=None, published_parameters=None),
    replace(
        _FITNET,
        name="highway_a",
        stages=_cifar_stages((16, 32, 60), (2, 2, 2)),
        source=f"TVDN, Table 2 (~236 K, 11 layers); {_FITNET_HEAD} FitNet A's widths 16 and 32, then 60 instead of its "
        "48, 48 and 64, chosen here to match",
    ),
    replace(
        _FITNET,
        name="highway_b",
        source=f"TVDN, Table 2 (~2.3 M, 19 layers); {_FITNET_HEAD} widths of Table 3's net, FitNet B's but for its "
        "first stage of 32 and 48",
    ),
    replace(
        _FITNET,
        name="highway_c",
        stages=_cifar_stages((30, 60, 96), (9, 9, 9), kernels=(1, 3)),
        source=f"TVDN, Table 2 (~1.25 M, 32 layers, alternating 3x3 and 1x1); {_FITNET_HEAD} widths chosen here to "
        "match",
    ),
)

# --- Fully connected nets [TVDN, 3.1, 4] -------------------------------------

_FC = tuple(
    DenseStackSpec(
        name=f"{kind}_fc{depth}",
        depth=depth,
        units=units,
        gating=gating,
        gate_bias=-2.0,
        scanned=depth > 100,
        source="TVDN, 3.1" if depth <= 100 else "TVDN, 3.1: SGD did not stall beyond 1000 layers",
    )
    for kind, units, gating in (("highway", 50, "coupled"), ("plain", 71, "plain"))
    for depth in (10, 20, 50, 100, 1000)
)
_TANH_MNIST = replace(
    next(row for row in _FC if row.name == "highway_fc50"),
    name="highway_fc50_tanh",
    activation="tanh",
    source="TVDN, 4: the nets of Figures 2-4 (MNIST)",
)
_TANH = (
    _TANH_MNIST,
    replace(
        _TANH_MNIST,
        name="highway_fc50_cifar100",
        gate_bias=-4.0,
        input_shape=(32, 32, 3),
        classes=100,
        source="TVDN, 4: the nets of Figures 2-4 (CIFAR-100)",
    ),
)

VARIANTS: Mapping[str, NetSpec] = MappingProxyType(
    {
        row.name: replace(row, recipe=row.name)
        for row in (*_IMAGENET, *_HIGHWAY_RESNETS, *_CIFAR110, *_CIFAR20, *_CONV_STACKS, *_FC, *_TANH)
    }
)

# --- Language models [UIE, 5.2, Table 1a], after Kim et al. 2015 ---------------

_LM_SIZES = {
    "large": CharLMSpec(
        name="charlm_large_coupled", kernels=(1, 2, 3, 4, 5, 6, 7), filters=(50, 100, 150, 200, 200, 200, 200)
    ),
    "small": CharLMSpec(
        name="charlm_small_coupled",
        kernels=(1, 2, 3, 4, 5, 6),
        filters=(25, 50, 75, 100, 125, 150),
        highways=1,
        units=300,
    ),
}
# Large models: [UIE, Table 1a]. Small model: about 93, after Kim et al. 2015.
_PERPLEXITIES = {
    "charlm_large_plain": "92.60",
    "charlm_large_residual": "91.32",
    "charlm_large_t_only": "82.94",
    "charlm_large_c_only": "79.15",
    "charlm_large_coupled": "79.13",
    "charlm_large_full": "79.09",
    "charlm_small_coupled": "about 93",
}


def _language_model(size: str, gating: str) -> CharLMSpec:
    """Return a row. Residual nets have twice the layers, to match parameters; plain nets have one."""
    spec = _LM_SIZES[size]
    source = (
        "UIE, 5.2, Table 1a, after Kim et al. 2015"
        if size == "large"
        else "Kim et al. 2015, LSTM-Char-Small, under UIE's gatings"
    )
    highways = {"residual": 2 * spec.highways, "plain": 1}.get(gating, spec.highways)
    notes = {"residual": ": twice the layers, to match parameters", "plain": ": a single plain layer"}
    return replace(
        spec,
        name=f"charlm_{size}_{gating}",
        gating=gating,
        highways=highways,
        source=source + notes.get(gating, ""),
        recipe=f"charlm_{size}_{gating}",
        published_perplexity=_PERPLEXITIES.get(f"charlm_{size}_{gating}", ""),
    )


# Apart from VARIANTS: these read words, those images.
LM_VARIANTS: Mapping[str, CharLMSpec] = MappingProxyType(
    {
        row.name: row
        for row in (
            _language_model(size, gating)
            for size in _LM_SIZES
            for gating in ("plain", "residual", "t_only", "c_only", "coupled", "full")
        )
    }
)
ALL_VARIANTS: Mapping[str, NetSpec | CharLMSpec] = MappingProxyType({**VARIANTS, **LM_VARIANTS})


def task_of_variant(variant: str | None) -> Task:
    """Return what a variant's networks are for; images where a file names no variant, or none that is known."""
    spec = ALL_VARIANTS.get(variant or "")
    return IMAGES if spec is None else spec.task

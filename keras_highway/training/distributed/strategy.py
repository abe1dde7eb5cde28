"""Devices of a run: the only file that names tf.distribute or keras.distribution.

| name        | backend    | devices                                  | launched as                              |
|-------------|------------|------------------------------------------|------------------------------------------|
| none        | any        | one; on a GPU a step is compiled by XLA, | one process                              |
|             |            | with PyTorch never                       |                                          |
| mirrored    | TensorFlow | all GPUs of a machine                    | one process                              |
| multiworker | TensorFlow | all GPUs of several machines             | one process per machine, with TF_CONFIG  |
| jax         | JAX        | all devices of one or several processes  | one process; or several, each with       |
|             |            |                                          | KERAS_DISTRIBUTION_JOB_ADDRESSES, ...    |
"""

import contextlib
import functools
import json
import os

import keras
import numpy as np

from keras_highway._support.schema import check_choice, refuse
from keras_highway.training.data.samples import Shard
from keras_highway.training.distributed import engines
from keras_highway.training.program import Program

NAMES = ("auto", "none", "mirrored", "multiworker", "jax")
_JAX_VARIABLE = "KERAS_DISTRIBUTION_JOB_ADDRESSES"


class Strategy:
    """One device."""

    name = "none"
    replicas = 1
    shard = Shard()

    def __init__(self):
        self.jit_compile = keras.backend.backend() == "jax" or _has_gpu()

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the run's files."""
        return self.shard.index == 0

    def scope(self):
        """Return the context in which a run's variables are made."""
        return contextlib.nullcontext()

    def data_scope(self):
        """Return the context in which a data set is put on the devices."""
        return self.scope()

    def prepare(self, program: Program) -> None:
        """Adapt a new program to the devices."""

    def check(self, recipe) -> None:
        """Raise a ValueError for a recipe whose batches cannot be divided among the replicas."""
        if not recipe.task.divides:
            text = f"Received: strategy={self.name!r}, {self.replicas} replicas"
            refuse((self.replicas > 1, f"A language model trains on one device: use --strategy none. {text}"))
            return
        block = recipe.mixed_samples
        of = f" of blocks of {block} samples that are mixed" if recipe.mixes else ""
        text = f"The batch must divide evenly: {self.replicas} replicas of {recipe.micro_batches} micro-batches{of}."
        uneven = recipe.batch_size % (self.replicas * recipe.micro_batches * block)
        refuse((uneven, f"{text} Received: batch_size={recipe.batch_size}"))

    def engine(self, program: Program):
        """Return the engine that runs the program's steps."""
        kinds = {"jax": engines.JaxEngine, "torch": engines.TorchEngine}
        return kinds.get(keras.backend.backend(), engines.TensorFlowEngine)(program, self)

    def put(self, batch: tuple[np.ndarray, ...]):
        """Place this process's part of a batch on its devices."""
        return tuple(keras.ops.convert_to_tensor(a) for a in batch)

    def run(self, function, batch):
        """Run a function of a batch on every replica; return the sum of the results."""
        return function(batch)

    def summed(self, tensors):
        """Inside a replica: return tensors summed over all replicas, and the number of replicas."""
        return tensors, 1

    def total(self, number: int) -> int:
        """Return the sum of a whole number over the replicas; every process must call it."""
        return number

    def check_same(self, fingerprint: str, what: str) -> None:
        """Refuse processes with different data; every process must call it."""
        if self.shard.count == 1:
            return
        digits = [fingerprint[i : i + 3] for i in range(0, 15, 3)]  # sums of 12 bits each: 60 bits are compared
        numbers = [int(part, 16) for part in digits]
        same = [self.total(number) for number in numbers] == [number * self.replicas for number in numbers]
        if self.total(int(same)) != self.replicas:  # one may have the mean of the others' numbers
            raise ValueError(
                f"The processes of this run have different {what}: give all of them the same. Received: fingerprint "
                f"{fingerprint[:12]} on this one"
            )

    def to_numpy(self, variable) -> np.ndarray:
        """Return a variable's value."""
        return np.asarray(keras.ops.convert_to_numpy(variable.value))

    def finish(self, net: keras.Model) -> None:
        """Make the trained network an ordinary one of this process."""


class _TensorFlow(Strategy):
    """A tf.distribute strategy."""

    def __init__(self, strategy, shard: Shard):
        super().__init__()
        self._strategy, self.shard = strategy, shard
        self._synchronized = []  # layers of batch normalization that were not before
        self.replicas = strategy.num_replicas_in_sync
        self._local = self.replicas // shard.count
        # Keras and TensorFlow cannot compile a step that reaches variables of several devices, nor collectives.
        self.jit_compile = self.jit_compile and self.replicas == 1

    def scope(self):
        return self._strategy.scope()

    def prepare(self, program: Program) -> None:
        """Compute batch statistics over the global batch; give every replica its part of dropout masks."""
        for layer in program.net._flatten_layers():
            if isinstance(layer, keras.layers.BatchNormalization) and not layer.synchronized:
                layer.synchronized = True
                self._synchronized.append(layer)
            if type(layer) is keras.layers.Dropout:
                layer.call = functools.partial(_dropout_of_replica, layer, self.replicas)
                continue
            for value in list(vars(layer).values()):
                if isinstance(value, keras.random.SeedGenerator):
                    value.next = functools.partial(_replica_seed, value.next)

    def finish(self, net):
        """Take back what `prepare` changed."""
        for layer in net._flatten_layers():
            vars(layer).pop("call", None)
            if layer in self._synchronized:
                layer.synchronized = False
            for value in list(vars(layer).values()):
                if isinstance(value, keras.random.SeedGenerator):
                    vars(value).pop("next", None)

    def put(self, batch):
        import tensorflow as tf

        def part(context):
            size = len(batch[0]) // self._local
            i = context.replica_id_in_sync_group - self.shard.index * self._local
            return tuple(tf.convert_to_tensor(a[i * size : (i + 1) * size]) for a in batch)

        return self._strategy.experimental_distribute_values_from_function(part)

    def run(self, function, batch):
        return self._strategy.reduce("SUM", self._strategy.run(function, args=(batch,)), axis=None)

    def total(self, number):
        import tensorflow as tf

        numbers = np.full(self._local, number, np.int32)
        return int(self.run(lambda batch: tf.reduce_sum(batch[0]), self.put((numbers,))))

    def summed(self, tensors):
        import tensorflow as tf

        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tensors), self.replicas


class Mirrored(_TensorFlow):
    """All GPUs of a machine, or its logical CPUs."""

    name = "mirrored"

    def __init__(self):
        import tensorflow as tf

        gpus = tf.config.list_logical_devices("GPU")
        if gpus:
            strategy = tf.distribute.MirroredStrategy()
        else:
            # The default collectives of several CPUs fail for a second strategy in a process.
            cpus = [device.name for device in tf.config.list_logical_devices("CPU")]
            strategy = tf.distribute.MirroredStrategy(cpus, tf.distribute.ReductionToOneDevice())
        super().__init__(strategy, Shard())


class MultiWorker(_TensorFlow):
    """The GPUs of all processes of TF_CONFIG."""

    name = "multiworker"

    def __init__(self):
        import tensorflow as tf

        cluster = _tf_cluster()
        if not cluster:
            raise ValueError(
                "The strategy 'multiworker' needs the environment variable TF_CONFIG, see docs/clusters.md. "
                f"Received: TF_CONFIG={os.environ.get('TF_CONFIG')!r}"
            )
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        super().__init__(strategy, Shard(cluster["index"], cluster["count"]))

    def data_scope(self):
        # Every process has the data; the broadcast of variables in a scope does not support uint8.
        return contextlib.nullcontext()


class JaxDataParallel(Strategy):
    """All devices that JAX sees, of one or several processes."""

    name = "jax"

    def __init__(self):
        import jax

        if os.environ.get(_JAX_VARIABLE):
            keras.distribution.initialize()
        super().__init__()
        self._distribution = keras.distribution.DataParallel(devices=jax.devices(), auto_shard_dataset=False)
        self.replicas = jax.device_count()
        self.shard = Shard(jax.process_index(), jax.process_count())

    def scope(self):
        return self._distribution.scope()

    def put(self, batch):
        import jax

        return tuple(
            jax.make_array_from_process_local_data(self._distribution.get_data_layout(a.shape).backend_layout, a)
            for a in batch
        )

    def total(self, number):
        import jax

        numbers = np.full(jax.local_device_count(), number, np.int32)
        return int(jax.jit(jax.numpy.sum)(*self.put((numbers,))))

    def to_numpy(self, variable) -> np.ndarray:
        return np.asarray(variable.value.addressable_data(0))

    def finish(self, net):
        from jax.experimental import multihost_utils

        if self.shard.count > 1:
            multihost_utils.sync_global_devices("trained")
        for variable in net.variables:
            variable._value = variable.value.addressable_data(0)


def make_strategy(name: str) -> Strategy:
    """Make a strategy; once in a process, and before anything else uses the devices."""
    check_choice("strategy", name, NAMES)
    if name == "auto":
        name = _automatic()
    backend = keras.backend.backend()
    needed = {"mirrored": "tensorflow", "multiworker": "tensorflow", "jax": "jax"}.get(name, backend)
    if backend != needed:
        raise ValueError(f"The strategy {name!r} needs KERAS_BACKEND={needed}. Received: KERAS_BACKEND={backend!r}")
    return {"none": Strategy, "mirrored": Mirrored, "multiworker": MultiWorker, "jax": JaxDataParallel}[name]()


def _automatic() -> str:
    if keras.backend.backend() == "jax":
        import jax

        return "jax" if os.environ.get(_JAX_VARIABLE) or jax.device_count() > 1 else "none"
    if keras.backend.backend() == "torch":
        if (_tf_cluster() or {}).get("count", 1) > 1 or os.environ.get(_JAX_VARIABLE):
            raise ValueError("Training on PyTorch runs on one device: for several use KERAS_BACKEND=tensorflow or jax.")
        return "none"
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            "Training runs on KERAS_BACKEND=tensorflow, jax or torch. "
            f"Received: KERAS_BACKEND={keras.backend.backend()!r}"
        )
    import tensorflow as tf

    if (_tf_cluster() or {}).get("count", 1) > 1:
        return "multiworker"
    return "mirrored" if len(tf.config.list_logical_devices("GPU")) > 1 else "none"


def _tf_cluster() -> dict | None:
    """Return the index of this process in TF_CONFIG, counted as TensorFlow does, or `None` without one."""
    text = os.environ.get("TF_CONFIG") or "{}"
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        config = json.loads(text)
        cluster = config.get("cluster", {})
        chiefs, workers = cluster.get("chief", []), cluster.get("worker", [])
        if not cluster:
            return None
        kind, index = config["task"]["type"], int(config["task"]["index"])
        count = {"chief": len(chiefs), "worker": len(workers)}[kind]
        if 0 <= index < count and len(chiefs) < 2 and cluster.keys() <= {"chief", "worker", "evaluator"}:
            return {"index": index + (len(chiefs) if kind == "worker" else 0), "count": len(chiefs) + len(workers)}
    raise ValueError(
        "TF_CONFIG must hold a cluster of workers with at most one chief, and the task of this process, see "
        f"docs/clusters.md. Received: TF_CONFIG={text!r}"
    )


def _dropout_of_replica(layer, replicas, inputs, training=False):
    """Dropout whose mask is this replica's part of the one that a single device would draw for the global batch."""
    import tensorflow as tf

    if not training or not layer.rate:
        return inputs
    size = keras.ops.shape(inputs)[0]
    noise = layer.noise_shape or (None,) * len(inputs.shape)
    mask = [keras.ops.shape(inputs)[i] if n is None else n for i, n in enumerate(noise)]
    own = noise[0] is None  # otherwise one mask serves the samples of all replicas
    ones = keras.ops.ones([size * replicas, *mask[1:]] if own else mask, inputs.dtype)
    kept = keras.random.dropout(ones, layer.rate, seed=layer.seed_generator)
    if own:
        context = tf.distribute.get_replica_context()
        first = (context.replica_id_in_sync_group if context else 0) * size
        kept = kept[first : first + size]
    return keras.ops.where(kept != 0, inputs * kept, 0)  # as in Keras, a dropped infinity is 0


def _replica_seed(draw, ordered=True):
    """Return a seed of a generator for this replica: Keras gives every replica the same one, and so the same mask."""
    import tensorflow as tf

    seed = draw(ordered)
    context = tf.distribute.get_replica_context()
    replica = context.replica_id_in_sync_group if context else 0
    return tf.stack([seed[0] + tf.cast(1_000_003 * replica, seed.dtype), seed[1]])


def _has_gpu() -> bool:
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return bool(tf.config.list_physical_devices("GPU"))
    return False

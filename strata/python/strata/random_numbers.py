"""Random numbers that depend on the seed, the micro-batch and the layer, and not on threads or the balance.

PyTorch's threads share one generator, so numbers drawn by partitions that run at the same time would depend on
their timing, and a recomputation would draw others. While a layer runs, its random operators draw from a
generator of its own.
"""

import threading

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["KeyedRandom"]

# For operators that draw from the default generator only.
_default_generator = threading.Lock()


class KeyedRandom(TorchDispatchMode):
    """Gives random operators the generator of a layer and micro-batch.

    `seed` is a function without arguments, called if an operator draws. The mode costs some microseconds an
    operator.
    """

    def __init__(self, seed, micro_batch):
        super().__init__()
        self._key = (seed, micro_batch)
        self._layer = 0
        self._generators = {}

    def begin_layer(self, layer):
        """The operators that follow belong to this layer, by its index in the whole sequence."""
        self._layer = layer
        self._generators.clear()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags or kwargs.get("generator") is not None or _drops_nothing(func, args, kwargs):
            return func(*args, **kwargs)
        overload = _with_generator(func)
        if overload is None:
            return self._by_default_generator(func, args, kwargs)
        device = next((arg.device for arg in args if isinstance(arg, torch.Tensor)), torch.device(kwargs.get("device") or "cpu"))
        return overload(*args, **{**kwargs, "generator": self._generator(device)})

    def _seed(self):
        seed, micro_batch = self._key
        # A product and xor by odd constants spreads neighbouring keys; a generator scrambles them further.
        mixed = (seed() + 0x9E3779B97F4A7C15 * (micro_batch + 1)) ^ (0xBF58476D1CE4E5B9 * (self._layer + 1))
        return mixed % 2**63

    def _generator(self, device):
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed())
        return self._generators[device]

    def _by_default_generator(self, func, args, kwargs):
        seed = int(torch.randint(2**62, (), generator=self._generator(torch.device("cpu"))))  # may draw the step's seed
        with _default_generator, torch.random.fork_rng():
            torch.manual_seed(seed)
            return func(*args, **kwargs)


def _drops_nothing(func, args, kwargs):
    """Whether the operator is an attention without dropout, which has the tag of random operators all the same."""
    for index, argument in enumerate(func._schema.arguments):
        if argument.name == "dropout_p":
            value = kwargs.get("dropout_p", args[index] if index < len(args) else argument.default_value)
            return value == 0
    return False


def _with_generator(func):
    """The overload of an operator that takes a generator; None if there is none."""
    if any(argument.name == "generator" for argument in func._schema.arguments):
        return func
    name = "generator" if func._overloadname == "default" else f"{func._overloadname}_generator"
    return getattr(func.overloadpacket, name, None)

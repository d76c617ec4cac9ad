"""GPipe by torchgpipe's API: a sequence of modules on several devices, with loss and optimizer outside.

::

    from strata.gpipe import GPipe

    model = GPipe(nn.Sequential(a, b, c, d), balance=[2, 2], devices=["cpu", "cpu"], chunks=8)
    loss = criterion(model(x), y)
    loss.backward()

Differences from torchgpipe: each partition runs its backward in a thread of its own, on a CPU too; random
numbers of a layer depend on the seed, the micro-batch and the layer, not on the balance; running variances
of deferred batch norm are unbiased, as those of nn.BatchNorm.
"""

from strata.gpipe.cells import is_checkpointing, is_recomputing
from strata.gpipe.gpipe import GPipe

__all__ = ["GPipe", "is_checkpointing", "is_recomputing"]

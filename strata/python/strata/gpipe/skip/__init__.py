"""Skip connections between layers of a sequence, by names: a layer stashes a tensor, a later one pops it.

::

    @skippable(stash=["features"])
    class Encode(nn.Module):
        def forward(self, x):
            yield stash("features", x)
            return self.conv(x)

    @skippable(pop=["features"])
    class Decode(nn.Module):
        def forward(self, x):
            features = yield pop("features")
            return self.conv(torch.cat([x, features], dim=1))

In a GPipe the tensor goes from partition to partition directly.
"""

from strata.gpipe.skip.skippable import Namespace, Skippable, pop, skippable, stash, verify_skippables

__all__ = ["Namespace", "Skippable", "pop", "skippable", "stash", "verify_skippables"]

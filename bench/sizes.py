"""The GPT that every contestant trains: recipes/bench.yaml and recipes/bench-mesh.yaml. No torch."""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Sizes:
    layers: int = 6
    width: int = 384
    heads: int = 6
    vocab: int = 256
    context: int = 256
    mini_batch: int = 32
    micro_batch: int = 4

    @property
    def micro_batches(self):
        return self.mini_batch // self.micro_batch

    @property
    def tokens(self):
        return self.mini_batch * self.context

    @property
    def flops_per_token(self):
        """Forward and backward of the weights' products, and of attention's two, half masked."""
        products = 12 * self.layers * self.width**2 + self.width * self.vocab
        return 6 * products + 6 * self.layers * self.width * self.context


def add_sizes(parser):
    for field in fields(Sizes):
        parser.add_argument("--" + field.name.replace("_", "-"), type=int, default=field.default)


def sizes_of(options):
    return Sizes(*(getattr(options, field.name) for field in fields(Sizes)))

"""DeepSpeed's replica: ZeRO stages 1 to 3 on its CPU accelerator and Gloo, fp32."""

import os
import warnings

os.environ.setdefault("DS_ACCELERATOR", "cpu")
# It calls collectives by names that PyTorch deprecates, and would pay for a warning each time.
warnings.filterwarnings("ignore", category=FutureWarning)

import deepspeed  # noqa: E402
from torch_gpt import Stage, make_optimizer, token_loss  # noqa: E402


def settings(sizes, world, stage, lean):
    zero = {"stage": stage, "overlap_comm": True,
            # As large as DDP's buckets: with the default, 5e8 elements, nothing would overlap.
            "reduce_bucket_size": 25 * 2**20 // 4, "allgather_bucket_size": 25 * 2**20 // 4}
    if lean:
        block = 12 * sizes.width**2
        zero.update({"reduce_bucket_size": block, "stage3_max_live_parameters": 2 * block,
                     "stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": block,
                     "stage3_param_persistence_threshold": 0})
    return {"train_micro_batch_size_per_gpu": sizes.micro_batch,
            "gradient_accumulation_steps": sizes.micro_batches // world,
            "gradient_clipping": 1.0, "zero_optimization": zero,
            "zero_force_ds_cpu_optimizer": False, "steps_per_print": 10**9}


class DeepSpeedReplica:
    """By default stage 3 keeps weights once collected if there are fewer than 1e9, and never shards
    those below 1e5 elements: fast. `lean` releases a block's weights after their use."""

    def __init__(self, sizes, world, stage, lean=False):
        model = Stage(sizes, 0, sizes.layers)
        deepspeed.init_distributed(dist_backend="gloo")
        self.engine, *_ = deepspeed.initialize(
            model=model, optimizer=make_optimizer(model),
            config=settings(sizes, world, stage, lean))
        # The engine averages over micro-batches and replicas.
        self.loss_of = token_loss(sizes.micro_batch * sizes.context)
        self.micro_batches, self.world = sizes.micro_batches // world, world

    def step(self, micro_batches):
        total = 0.0
        for x, y in micro_batches:
            loss = self.loss_of(self.engine(x), y)
            self.engine.backward(loss)
            self.engine.step()
            total += loss.item()
        return total / (self.micro_batches * self.world)

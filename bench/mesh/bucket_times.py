"""Times what DistributedDataParallel does in its backward: how long buckets are under way, and what
of it shows."""

import statistics
import time
from contextlib import contextmanager

import torch.distributed as dist
from intervals import merged_seconds, overlap_of


class BucketTimes:
    """A communication hook that does what the default one does, and takes down when."""

    def __init__(self, model):
        self.world = dist.get_world_size()
        self.steps, self.buckets, self.plain = [], [], []
        model.register_comm_hook(self, BucketTimes.reduce)

    def reduce(self, bucket):
        span = [time.perf_counter(), None]
        self.buckets.append(span)
        gradients = bucket.buffer().div_(self.world)

        def done(future):
            span[1] = time.perf_counter()
            return future.value()[0]

        return dist.all_reduce(gradients, async_op=True).get_future().then(done)

    @contextmanager
    def backward(self, last):
        begin = time.perf_counter()
        yield
        end = time.perf_counter()
        if not last:
            self.plain.append(end - begin)
            return
        # After the start of the last bucket no computation is left.
        waits = end - max(start for start, _ in self.buckets)
        slower = end - begin - waits - statistics.median(self.plain)
        self.steps.append({"under_way_seconds": merged_seconds(self.buckets),
                           "wait_seconds": waits, "slower_seconds": slower})
        self.buckets, self.plain = [], []

    def overlap(self, warmup):
        return overlap_of(self.steps[warmup:])

"""FBGEMM's table-batched embedding on the CPU, as embedding.cpp is driven: one thread, bags of one id.

    fbgemm_peer.py ROWS WIDTH OPTIMIZER PRECISION BATCHES SECONDS
"""

import json
import sys
import time

import numpy
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen)

OPTIMIZERS = {"adagrad": EmbOptimType.EXACT_ADAGRAD,
              "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD}


def main():
    rows, width, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[6])
    precision = {"fp32": SparseType.FP32, "fp16": SparseType.FP16}[sys.argv[4]]
    torch.set_num_threads(1)
    table = SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, width, EmbeddingLocation.HOST, ComputeDevice.CPU)],
        optimizer=OPTIMIZERS[sys.argv[3]], learning_rate=0.05, eps=1e-10,
        weights_precision=precision, pooling_mode=PoolingMode.SUM)
    table.init_embedding_weights_uniform(-0.01, 0.01)
    batches = torch.from_numpy(numpy.fromfile(sys.argv[5], dtype=numpy.int64)).view(-1, 65536)
    reads = list(batches)
    updates = [torch.unique(batch) for batch in reads]
    gradients = torch.full((65536, width), 0.25)
    for line in sys.stdin:
        what, done, spent, turn = line.strip(), 0, 0.0, 0
        while spent < seconds:
            ids = (reads if what == "read" else updates)[turn % len(reads)]
            offsets = torch.arange(len(ids) + 1)
            begin = time.process_time()
            if what == "read":
                with torch.no_grad():
                    table(ids, offsets)
            else:
                out = table(ids, offsets)
                begin = time.process_time()  # the update alone
                out.backward(gradients[:len(ids)])
            spent += time.process_time() - begin
            done += len(ids)
            turn += 1
        print(json.dumps({"per_second": done / spent}), flush=True)


if __name__ == "__main__":
    main()

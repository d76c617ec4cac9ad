/// Launches the end of a step on a GPU: squares of gradients, the norm and what follows from it, the update.
///
/// The host need not know any of it before the step is over: what one kernel finds the next reads from
/// StepScalars on the device. Bits are the host's (block_squares.cpp, update_kernels.cpp, gradient_norm.h,
/// loss_scale.h), but for powers of beta, whose last bit in fp64 is each machine's library's.
///
/// Shapes   arrays as in update_kernels.h, in device memory; pointers at 16 bytes are fast, others right.
/// Cost     bytes an element: squares 4; AdamW in fp32 16 + 12, with a 16-bit copy + 2. An end_step() or
///          begin_update() is one thread's work, some microseconds.
/// Threads  `stream` is the device's (a cudaStream_t); nothing waits for it.
/// Errors   InternalError: the device refused a launch.
#pragma once

#include <cstdint>

#include "strata/optim/step_end.h"
#include "strata/optim/update_kernels.h"

namespace strata::cuda {

/// sums[b] += squares of block b of x (kFlatBlock), in fp64, the last block cut at n.
void add_block_squares(const float* x, double* sums, std::int64_t n, void* stream);

/// As step_end.h has them, `layers` on the device. A layer's blocks are added in the order of a block of 1,024
/// threads (thread t those t, t + 1,024, ...; then the tree): within rounding of the host's, and the same for
/// every cut of the layer.
void sum_layers(const double* blocks, const LayerBlocks* layers, std::int64_t count, double* sums,
                void* stream);
/// `count` sums, the loss the last of them.
void end_step(const double* sums, std::int64_t count, double clip, StepScalars* scalars,
              void* stream);
/// values = (1 - momentum) values + momentum found, in fp64, rounded once; not if the scalars say skip.
void move_statistic(float* values, const double* found, double momentum, std::int64_t n,
                    const StepScalars* scalars, void* stream);

/// *step = update_step() of the scalars' learning rate, factor and count of updates.
void begin_update(const kernels::UpdateConstants& constants, const StepScalars* scalars,
                  kernels::UpdateStep* step, void* stream);

/// Updates elements [0, n) by `step`, on the device, whose rule is `rule`; not if the scalars say skip.
void update(kernels::UpdateRule rule, const kernels::UpdateStep* step,
            const kernels::UpdateArrays& arrays, std::int64_t n, const StepScalars* scalars,
            void* stream);

}  // namespace strata::cuda

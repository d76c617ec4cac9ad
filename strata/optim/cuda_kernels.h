/// Launches the end of a step on a GPU: squares of gradients, the norm and clip factor, the update.
///
/// The host does not wait for the results: each kernel reads those of the kernels before it from
/// StepScalars on the device. Bits equal the host's (block_squares.cpp, update_kernels.cpp,
/// gradient_norm.h, loss_scale.h), except powers of beta, whose last bit in fp64 depends on the
/// math library.
///
/// Shapes   arrays as in update_kernels.h, in device memory; pointers at multiples of 16 bytes are
///          faster.
/// Cost     bytes per element: squares 4; AdamW in fp32 16 + 12, with a 16-bit copy + 2. One thread
///          runs end_step() or begin_update(), in some microseconds.
/// Threads  `stream` is a cudaStream_t of the device; no function waits for it.
/// Errors   InternalError: the device refused a launch.
#pragma once

#include <cstdint>

#include "strata/optim/step_end.h"
#include "strata/optim/update_kernels.h"

namespace strata::cuda {

/// sums[b] += the squares of block b of x (kFlatBlock), in fp64; the last block ends at n.
void add_block_squares(const float* x, double* sums, std::int64_t n, void* stream);

/// As in step_end.h, `layers` on the device. Thread t of 1,024 adds blocks t, t + 1,024, ... of a
/// layer, then a tree adds the threads' sums: within rounding of the host's, and the same for every
/// cut of the layer.
void sum_layers(const double* blocks, const LayerBlocks* layers, std::int64_t count, double* sums,
                void* stream);
/// `count` sums; the last is the loss.
void end_step(const double* sums, std::int64_t count, double clip, StepScalars* scalars,
              void* stream);
/// values = (1 - momentum) values + momentum found, in fp64, rounded once; unchanged if the scalars
/// say skip.
void move_statistic(float* values, const double* found, double momentum, std::int64_t n,
                    const StepScalars* scalars, void* stream);

/// *step = update_step() of the scalars' learning rate, factor and number of updates.
void begin_update(const kernels::UpdateConstants& constants, const StepScalars* scalars,
                  kernels::UpdateStep* step, void* stream);

/// Updates elements [0, n) by `rule` with the constants `step` on the device; no-op if the scalars
/// say skip.
void update(kernels::UpdateRule rule, const kernels::UpdateStep* step,
            const kernels::UpdateArrays& arrays, std::int64_t n, const StepScalars* scalars,
            void* stream);

}  // namespace strata::cuda

/// Enqueues work on an emulated GPU: a function of addresses, which runs asynchronously in the
/// order of the compute stream, or is recorded.
///
/// Work runs as late as possible: when a thread waits for the stream or queries it a second time. A
/// read without a wait gets the old values; an input that is overwritten too early gives wrong
/// results. Under STRATA_EMULATED_EAGER=1 work runs at once.
///
/// A recording stores work and runs none of it; a replay runs the same work on the same addresses,
/// and nothing that the host did in between. It refuses what CUDA refuses on a stream that records.
///
/// Threads  any.
/// Errors   c10::Error: a wait, or memory that is not locked, while the caller records.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "strata/device/device.h"

namespace strata::emulated {

/// Enqueues on the compute stream of the calling thread's device.
void give(std::function<void()> work);
void give_to(int device, std::function<void()> work);  ///< on that of another device
/// Waits for that stream.
void synchronize();
bool is_recording();  ///< whether the calling thread is
void refuse_while_recording(const char* what);

/// The same memory as a CPU tensor, for use in work; keeps nothing alive. Host tensors are
/// unchanged.
at::Tensor on_host(const at::Tensor& x);

void lock_host_memory(const void* begin, std::size_t bytes);
void unlock_host_memory(const void* begin);
bool is_locked(const void* address);

std::shared_ptr<StreamQueue> compute_queue(int index);
std::shared_ptr<StreamQueue> make_queue();

}  // namespace strata::emulated

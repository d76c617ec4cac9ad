/// Gives work to an emulated GPU: a function of addresses, which is done behind the caller's back, in the order of
/// the compute stream, or recorded.
///
/// Work is done as late as can be: when somebody waits for the stream or asks a second time whether it is done.
/// What reads its result without a wait reads what was there before; what it reads and is overwritten meanwhile it
/// reads wrong. Under STRATA_EMULATED_EAGER=1 it is done at once.
///
/// A recording keeps work and does none of it; its replay does the same work on the same addresses, and nothing that
/// the host did beside it. What CUDA refuses of a stream that records is refused.
///
/// Threads  any.
/// Errors   c10::Error: a wait, or memory that isn't locked, while the caller records.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "strata/device/device.h"

namespace strata::emulated {

/// On the compute stream of the calling thread's device.
void give(std::function<void()> work);
void give_to(int device, std::function<void()> work);  ///< on that of another
/// Waits for that stream.
void synchronize();
bool is_recording();  ///< whether the calling thread is
void refuse_while_recording(const char* what);

/// The same memory as a tensor of the CPU's, for work; keeps nothing alive. What lies on the host stays as it is.
at::Tensor on_host(const at::Tensor& x);

void lock_host_memory(const void* begin, std::size_t bytes);
void unlock_host_memory(const void* begin);
bool is_locked(const void* address);

std::shared_ptr<StreamQueue> compute_queue(int index);
std::shared_ptr<StreamQueue> make_queue();

}  // namespace strata::emulated

/// Sets up a process before its first use of CUDA, so that a GPU computes the same bits in every
/// run.
///
/// No other code does this: cuBLAS reads its workspace size with its first handle, and libtorch's
/// allocator reads its settings with its first block. Nothing here changes what a CPU computes.
///
///     train.deterministic: true     cuBLAS with workspaces of fixed size, only deterministic
///                                   algorithms, no sums in 16 bit, no cuDNN attention
///     false                         libtorch's defaults
///
/// Threads  call it from the process's first thread, before ranks: it sets the environment.
/// Errors   UserError: the environment sets a nondeterministic workspace.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "strata/device/device.h"

namespace strata {

/// Bytes of cuBLAS's workspace for each stream.
constexpr std::int64_t kFixedWorkspaceBytes = std::int64_t{8} * 4 << 20;

/// Prepares the process; does nothing for a CPU.
void prepare_device(DeviceKind kind, bool deterministic);

/// Reads a variable; returns null if it is not set.
using Environment = std::function<const char*(const char* name)>;

/// Lists how the environment changes a GPU's bits, bytes or seconds, one sentence each, for
/// `doctor`. comm/library_environment.h covers NCCL.
std::vector<std::string> environment_warnings(const Environment& variable);

}  // namespace strata

/// Decides what a process sets before its first use of CUDA, so that a GPU computes the same bits again.
///
/// The one place that does: cuBLAS reads its workspace's size when its first handle is made, libtorch's
/// allocator its settings before its first block. Nothing of it changes what a CPU computes.
///
///     train.deterministic: true     cuBLAS with workspaces of fixed size, deterministic algorithms alone, no
///                                   sums in 16 bit, no cuDNN attention
///     false                         what libtorch does by itself
///
/// Threads  call it from the process's first thread, before ranks: it sets the environment.
/// Errors   UserError: the environment asks for what is not deterministic.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "strata/device/device.h"

namespace strata {

/// Of cuBLAS, for each stream.
constexpr std::int64_t kFixedWorkspaceBytes = std::int64_t{8} * 4 << 20;

/// Nothing happens for a CPU.
void prepare_device(DeviceKind kind, bool deterministic);

/// Reads a variable; null: it is not set.
using Environment = std::function<const char*(const char* name)>;

/// What the environment changes about a GPU's bits, bytes or seconds, a sentence each; for `doctor`. What
/// concerns NCCL is in comm/library_environment.h.
std::vector<std::string> environment_findings(const Environment& variable);

}  // namespace strata

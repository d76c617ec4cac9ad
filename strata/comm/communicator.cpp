// Communicators do not block: while a call is not complete we look whether the run has failed, and leave.
// The library wants one call at a time with a handle, and an abort comes from another thread than the
// rank's; so every call holds a lock, and none for long.
//
// When a process is lost the library may notice before the transport, but knows less: it is given a while.
#include "strata/comm/communicator.h"

#include <chrono>
#include <thread>
#include <utility>

#include "strata/comm/mailboxes.h"

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

// Most calls are complete within microseconds; joining takes seconds.
void pause(int polls) {
  constexpr int kSpins = 200;
  if (polls < kSpins) return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::microseconds(100));
}

const char* fix_of(LibraryFailure failure) {
  switch (failure) {
    case LibraryFailure::kDevice:
      return "look for errors of that GPU in dmesg (Xid), then go on from the last checkpoint with "
             "--resume";
    case LibraryFailure::kMisuse:
      return "run with NCCL_DEBUG=WARN, which says which call";
    default:
      return "set NCCL_SOCKET_IFNAME to the network that joins the machines; NCCL_DEBUG=INFO says "
             "which one is tried";
  }
}

}  // namespace

Communicator::Communicator(const CollectiveLibrary& library, const std::string& unique_id, int rank,
                           const std::vector<int>& ranks, Device device,
                           std::function<bool()> failed)
    : library_(library), ranks_(ranks), rank_(rank), failed_(std::move(failed)) {
  handle_ = library_.init_rank(unique_id, rank, static_cast<int>(ranks.size()), device);
  try {
    await("join");
  } catch (...) {
    abort();
    throw;
  }
}

CollectiveLibrary::Handle Communicator::open() const {
  STRATA_CHECK(!finished_, "comm.communicator");
  if (!handle_) throw Cancelled();
  return handle_;
}

LibraryState Communicator::state() {
  const std::lock_guard lock(mutex_);
  return handle_ ? library_.state(handle_) : LibraryState{};
}

Error Communicator::error_of(const LibraryState& state, const char* call) const {
  std::string names;
  for (const int rank : ranks_) names += (names.empty() ? "" : ", ") + std::to_string(rank);
  return SystemError({.operation = "comm.nccl",
                      .where = std::string(call) + " among ranks " + names,
                      .what = "NCCL failed",
                      .expected = "",
                      .got = state.error,
                      .fix = fix_of(state.failure)});
}

void Communicator::await(const char* call) {
  constexpr auto kGrace = std::chrono::seconds(2);
  Clock::time_point failed_at{};
  for (int polls = 0;; ++polls) {
    LibraryState state;
    {
      const std::lock_guard lock(mutex_);
      state = library_.state(open());
    }
    const bool failing = state.failure != LibraryFailure::kNone;
    if (state.done && !failing) return;
    if (failed_()) throw Cancelled();
    if (failing && failed_at == Clock::time_point{}) failed_at = Clock::now();
    if (failing && Clock::now() - failed_at > kGrace) throw_error(error_of(state, call));
    pause(polls);
  }
}

template <typename Calls>
void Communicator::group(const char* name, const Calls& calls) {
  {
    const std::lock_guard lock(mutex_);
    const CollectiveLibrary::Handle handle = open();
    library_.group_start();
    try {
      calls(handle);
    } catch (...) {
      // Left open, it would hold back all that this thread calls next, an abort, too.
      try {
        library_.group_end();
      } catch (const Error&) {  // that a call was refused, which the first error has said better
      }
      throw;
    }
    library_.group_end();
  }
  await(name);
}

void Communicator::exchange(std::span<const Part> sends, std::span<const Part> receives,
                            const Stream& stream) {
  group("exchange", [&](CollectiveLibrary::Handle handle) {
    for (const Part& part : sends)
      if (part.tensor.numel() > 0) library_.send(handle, part.tensor, part.rank, stream);
    for (const Part& part : receives)
      if (part.tensor.numel() > 0) library_.receive(handle, part.tensor, part.rank, stream);
  });
}

void Communicator::all_gather(const at::Tensor& shard, const at::Tensor& flat,
                              const Stream& stream) {
  group("all_gather", [&](CollectiveLibrary::Handle handle) {
    library_.all_gather(handle, shard, flat, stream);
  });
}

void Communicator::all_reduce_sum(const at::Tensor& x, const Stream& stream) {
  group("all_reduce",
        [&](CollectiveLibrary::Handle handle) { library_.all_reduce(handle, x, stream); });
}

// Even shards are one reduction, which the network may do; others one each to its rank.
void Communicator::reduce_scatter_sum(const at::Tensor& flat, std::span<const FlatRange> shards,
                                      const at::Tensor& own, const Stream& stream) {
  group("reduce_scatter", [&](CollectiveLibrary::Handle handle) {
    if (are_even(shards)) return library_.reduce_scatter(handle, flat, own, stream);
    for (std::size_t rank = 0; rank < shards.size(); ++rank) {
      if (shards[rank].size() == 0) continue;
      const int root = static_cast<int>(rank);
      library_.reduce(handle, flat.narrow(0, shards[rank].begin, shards[rank].size()),
                      root == rank_ ? own : at::Tensor(), root, stream);
    }
  });
}

void Communicator::begin_finish() {
  const std::lock_guard lock(mutex_);
  library_.finalize(open());
}

void Communicator::finish() {
  await("finish");
  const std::lock_guard lock(mutex_);
  library_.destroy(open());
  handle_ = nullptr;
  finished_ = true;
}

void Communicator::abort() {
  const std::lock_guard lock(mutex_);
  if (!handle_) return;
  try {
    library_.abort(handle_);
  } catch (const Error&) {  // there is nothing else to end it by, and the run has failed anyway
  }
  handle_ = nullptr;
}

}  // namespace strata

// No call of the library waits for another rank or for free space on the device
// (collective_library.h), and the library allows one call at a time per handle. Every call holds
// the session's lock for a short time only.
//
// An abort may wait, for the library's own thread, which enqueues work on the device, and for the
// device. A kernel of another communicator that waits for the same lost rank may block either. So
// communicators are not aborted one after another: each is aborted by its own watcher thread, which
// makes no device calls before that.
#include "strata/comm/communicator.h"

#include <chrono>
#include <thread>
#include <utility>

#include "strata/comm/mailboxes.h"

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kWatch = std::chrono::milliseconds(100);
// The transport names a lost process; it knows more than the library, which detects the loss, too.
// If the transport takes longer, its error still takes precedence (FailureOf::kPeer).
constexpr auto kGrace = std::chrono::seconds(2);

// Most calls are complete within microseconds; joining takes seconds.
void pause(int polls) {
  constexpr int kSpins = 200;
  if (polls < kSpins) return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::microseconds(100));
}

const char* fix_of(LibraryFailure failure) {
  switch (failure) {
    case LibraryFailure::kDevice:
      return "look for errors of that GPU in dmesg (Xid), then resume from the last checkpoint "
             "with "
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
                           const std::vector<int>& ranks, Device device, CommunicatorRun run)
    : library_(library), ranks_(ranks), rank_(rank), run_(std::move(run)) {
  session_.change([&](Session& it) {
    it.handle = library_.init_rank(unique_id, rank, static_cast<int>(ranks.size()), device);
  });
  try {
    watcher_ = std::thread([this] { watch(); });
    await("join");
  } catch (...) {
    end();
    throw;
  }
}

Communicator::~Communicator() { end(); }

void Communicator::begin_abort() {
  session_.change([](Session& it) { it.aborting = true; });
}

void Communicator::end() {
  begin_abort();
  if (!watcher_.joinable()) return watch();  // it could not be started
  watcher_.join();
}

CollectiveLibrary::Handle Communicator::open(const Session& session) {
  STRATA_CHECK(!session.finished, "comm.communicator");
  if (!session.handle) throw Cancelled();
  return session.handle;
}

LibraryState Communicator::state() const {
  return session_.look(
      [&](const Session& it) { return it.handle ? library_.state(it.handle) : LibraryState{}; });
}

Error Communicator::error_of(const LibraryState& state) const {
  std::string names;
  for (const int rank : ranks_) names += (names.empty() ? "" : ", ") + std::to_string(rank);
  return SystemError({.operation = "comm.nccl",
                      .where = std::string(call_) + " among ranks " + names,
                      .what = "NCCL failed",
                      .expected = "",
                      .got = state.error,
                      .fix = fix_of(state.failure)});
}

void Communicator::watch() {
  Clock::time_point failing_since{};
  const auto ends = [](const Session& it) { return it.aborting || !it.handle; };
  while (!session_.wait_for(kWatch, ends) && !run_.failed()) {
    const LibraryState now = state();
    if (now.failure == LibraryFailure::kNone) continue;
    if (failing_since == Clock::time_point{}) failing_since = Clock::now();
    if (Clock::now() - failing_since >= kGrace) run_.fail(error_of(now), now.failure);
  }
  session_.change([&](Session& it) {
    if (!it.handle) return;
    try {
      library_.abort(it.handle);
    } catch (const Error&) {  // nothing else can end it, and the run has failed anyway
    }
    it.handle = nullptr;
  });
}

// The watcher reports failures; it may run some time after the run has failed.
void Communicator::await(const char* call) {
  call_ = call;
  for (int polls = 0;; ++polls) {
    const LibraryState state =
        session_.look([&](const Session& it) { return library_.state(open(it)); });
    if (run_.failed()) throw Cancelled();
    if (state.done && state.failure == LibraryFailure::kNone) return;
    pause(polls);
  }
}

template <typename Calls>
void Communicator::group(const char* name, const Calls& calls) {
  session_.look([&](const Session& it) {
    const CollectiveLibrary::Handle handle = open(it);
    library_.group_start();
    try {
      calls(handle);
    } catch (...) {
      // An open group would hold back all later calls of this thread, including an abort.
      try {
        library_.group_end();
      } catch (const Error&) {  // a rejected call; the first error describes it better
      }
      throw;
    }
    library_.group_end();
  });
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
  session_.look([&](const Session& it) { library_.finalize(open(it)); });
}

void Communicator::finish() {
  await("finish");
  session_.change([&](Session& it) {
    library_.destroy(open(it));
    it = {.handle = nullptr, .finished = true};
  });
}

}  // namespace strata

/// Replaces NCCL in tests of communicators and collectives.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/comm/collective_library.h"
#include "strata/comm/delayed_ranks_test.h"

namespace strata {

/// Work between group_start() and group_end() reaches the stream some time later and completes when
/// its peers have arrived. A handle that is misused or leaked fails the test. Like NCCL's, an abort
/// stops the communicator's kernels, waits for the thread that enqueues them, and then for the
/// device.
class FakeLibrary final : public CollectiveLibrary {
 public:
  ~FakeLibrary() override {
    for (const std::unique_ptr<Joined>& joined : joined_)
      EXPECT_TRUE(joined->aborted || joined->destroyed)
          << "rank " << joined->rank << " of a communicator";
  }

  /// The number of calls of this name, by all ranks.
  int calls(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(std::ranges::count(log_, name));
  }
  int ids() const { return ids_; }
  /// All calls, in their order.
  std::vector<std::string> log() const {
    const std::lock_guard lock(mutex_);
    return log_;
  }

  /// Ranks of one device, which NCCL refuses.
  std::function<std::uint64_t(Device)> id_of = [](Device device) {
    return static_cast<std::uint64_t>(device.index);
  };
  std::function<int()> version_of = [] { return 22809; };
  /// The failure that the library reports for a rank's communicator; none by default.
  std::function<LibraryState(int rank)> failure_of;
  /// Whether a device's stream is full: the library's own thread then waits.
  std::function<bool(const Stream& stream)> full;
  /// Calls that are rejected at once, together with their group.
  std::string refused;

  bool present() const override { return true; }
  int version() const override { return version_of(); }
  std::uint64_t device_id(Device device) const override { return id_of(device); }
  std::string unique_id() const override {
    note("unique_id");
    return "meeting " + std::to_string(ids_++);
  }

  Handle init_rank(const std::string& id, int rank, int size, Device) const override {
    note("init_rank");
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Meeting>& meeting = meetings_[id];
    if (!meeting) meeting = std::make_shared<Meeting>(size);
    EXPECT_EQ(meeting->size, size);
    const std::lock_guard joining(meeting->mutex);
    EXPECT_TRUE(meeting->joined.insert(rank).second) << "joined twice";
    joined_.push_back(std::make_unique<Joined>(meeting, rank));
    return joined_.back().get();
  }

  LibraryState state(Handle handle) const override {
    Joined& joined = usable(handle);
    if (failure_of)
      if (LibraryState state = failure_of(joined.rank); state.failure != LibraryFailure::kNone)
        return state;
    const std::lock_guard lock(joined.meeting->mutex);
    const std::size_t all = static_cast<std::size_t>(joined.meeting->size);
    if (joined.meeting->joined.size() < all) return {.done = false};
    if (joined.finalized && joined.meeting->finalized < joined.meeting->size)
      return {.done = false};
    if (waits_for_room(joined) || joined.polls_left-- > 0) return {.done = false};
    for (const auto& [stream, task] : std::exchange(joined.enqueued, {}))
      delayed(stream).give(task);
    return {};
  }

  void finalize(Handle handle) const override {
    note("finalize");
    Joined& joined = ready(handle);
    const std::lock_guard lock(joined.meeting->mutex);
    EXPECT_FALSE(std::exchange(joined.finalized, true));
    ++joined.meeting->finalized;
  }
  void destroy(Handle handle) const override {
    note("destroy");
    Joined& joined = ready(handle);
    EXPECT_TRUE(joined.finalized);
    joined.destroyed = true;
    joined.streams.clear();
  }
  void abort(Handle handle) const override {
    note("abort");
    Joined& joined = usable(handle);
    {
      const std::lock_guard lock(joined.meeting->mutex);
      joined.aborted = true;
    }
    joined.meeting->changed.notify_all();
    EXPECT_TRUE(in_time([&] { return !waits_for_room(joined); })) << "no room for its last call";
    for (const Stream& stream : std::exchange(joined.streams, {})) {
      const Completion idle = stream.record();
      EXPECT_TRUE(in_time([&] { return idle.ready(); })) << "a device that is never idle";
    }
  }

  void group_start() const override { EXPECT_FALSE(std::exchange(group().open, true)); }
  void group_end() const override {
    OpenGroup& group = this->group();
    EXPECT_TRUE(std::exchange(group.open, false));
    if (std::exchange(group.refused, false)) {
      group.calls.clear();
      throw SystemError({.operation = "test.library", .what = "the group was refused"});
    }
    for (Call& call : group.calls) {
      const std::lock_guard lock(call.joined->meeting->mutex);
      call.joined->enqueued.emplace_back(call.stream, std::move(call.task));
    }
    group.calls.clear();
  }

  void send(Handle handle, const at::Tensor& from, int to, const Stream& stream) const override {
    note("send");
    add(handle, stream, [to, from = Address(from)](Joined& joined) {
      const std::lock_guard lock(joined.meeting->mutex);
      joined.meeting->sent[{joined.rank, to}].push_back(from.tensor().clone());
      joined.meeting->changed.notify_all();
    });
  }
  void receive(Handle handle, const at::Tensor& to, int from, const Stream& stream) const override {
    note("receive");
    add(handle, stream, [from, to = Address(to)](Joined& joined) {
      std::unique_lock lock(joined.meeting->mutex);
      std::deque<at::Tensor>& channel = joined.meeting->sent[{from, joined.rank}];
      joined.meeting->changed.wait(lock, [&] { return joined.aborted || !channel.empty(); });
      if (channel.empty()) return;
      ASSERT_EQ(channel.front().nbytes(), to.tensor().nbytes());
      to.tensor().copy_(channel.front());
      channel.pop_front();
    });
  }
  void all_gather(Handle handle, const at::Tensor& part, const at::Tensor& whole,
                  const Stream& stream) const override {
    note("all_gather");
    meet(handle, part, stream, [whole = Address(whole)](const std::vector<at::Tensor>& all) {
      whole.tensor().copy_(at::cat(all));
    });
  }
  // From the last rank to the first: another order than the ranks'.
  void all_reduce(Handle handle, const at::Tensor& x, const Stream& stream) const override {
    note("all_reduce");
    meet(handle, x, stream, [x = Address(x)](const std::vector<at::Tensor>& all) {
      x.tensor().copy_(reversed_sum(all));
    });
  }
  void reduce_scatter(Handle handle, const at::Tensor& whole, const at::Tensor& part,
                      const Stream& stream) const override {
    note("reduce_scatter");
    meet(handle, whole, stream,
         [rank = usable(handle).rank, part = Address(part)](const std::vector<at::Tensor>& all) {
           part.tensor().copy_(reversed_sum(all).narrow(0, rank * part.numel, part.numel));
         });
  }
  void reduce(Handle handle, const at::Tensor& from, const at::Tensor& into, int root,
              const Stream& stream) const override {
    note("reduce");
    EXPECT_EQ(into.defined(), root == usable(handle).rank);
    meet(handle, from, stream, [into = Address(into)](const std::vector<at::Tensor>& all) {
      if (into.at) into.tensor().copy_(reversed_sum(all));
    });
  }

 private:
  // An address, as kernels see it; keeps nothing alive.
  struct Address {
    explicit Address(const at::Tensor& x) {
      if (!x.defined()) return;
      EXPECT_TRUE(x.is_contiguous() && (x.numel() == 0 || DelayedQueue::owns(x)));
      at = x.data_ptr();
      numel = x.numel();
      dtype = x.scalar_type();
    }
    at::Tensor tensor() const { return at::from_blob(at, {numel}, host_options(dtype)); }
    void* at = nullptr;
    std::int64_t numel = 0;
    at::ScalarType dtype = at::kFloat;
  };

  struct Meeting {
    explicit Meeting(int size) : size(size) {}
    const int size;
    std::mutex mutex;
    std::condition_variable changed;
    std::set<int> joined;
    int finalized = 0;
    std::map<std::pair<int, int>, std::deque<at::Tensor>> sent;  // from, to
    std::map<int, std::map<int, at::Tensor>> collectives;        // number: by rank
  };

  struct Joined {
    Joined(std::shared_ptr<Meeting> meeting, int rank) : meeting(std::move(meeting)), rank(rank) {}
    const std::shared_ptr<Meeting> meeting;
    const int rank;
    int collectives = 0;
    int polls_left = 3;
    bool finalized = false;
    std::atomic<bool> aborted = false, destroyed = false;
    std::vector<std::pair<Stream, std::function<void()>>> enqueued;  // not yet to the stream
    std::vector<Stream> streams;                                     // the streams with work
  };

  struct Call {
    Joined* joined;
    Stream stream;
    std::function<void()> task;
  };
  struct OpenGroup {
    bool open = false, refused = false;
    std::vector<Call> calls;
  };
  static OpenGroup& group() {
    thread_local OpenGroup group;
    return group;
  }

  void note(const std::string& call) const {
    const std::lock_guard lock(mutex_);
    log_.push_back(call);
    if (call != refused) return;
    group().refused = group().open;
    throw SystemError({.operation = "test.library", .what = call + " is refused"});
  }
  static Joined& usable(Handle handle) {
    Joined& joined = *static_cast<Joined*>(handle);
    EXPECT_FALSE(joined.aborted || joined.destroyed) << "a handle is used after its end";
    return joined;
  }
  // Earlier work has reached the stream.
  static Joined& ready(Handle handle) {
    Joined& joined = usable(handle);
    EXPECT_TRUE(joined.enqueued.empty()) << "the call before is not complete";
    return joined;
  }

  bool waits_for_room(const Joined& joined) const {
    return full &&
           std::ranges::any_of(joined.enqueued, [&](const auto& it) { return full(it.first); });
  }
  static bool in_time(const std::function<bool()>& happened) {
    for (int i = 0; i < 10000 && !happened(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return happened();
  }

  static void add(Handle handle, const Stream& stream, std::function<void(Joined&)> task) {
    Joined& joined = ready(handle);
    EXPECT_TRUE(group().open) << "alone, each would wait for its peer before the next is given";
    joined.polls_left = 3;
    joined.streams.push_back(stream);
    group().calls.push_back({&joined, stream, [&joined, task = std::move(task)] { task(joined); }});
  }
  static void meet(Handle handle, const at::Tensor& own, const Stream& stream,
                   std::function<void(const std::vector<at::Tensor>&)> receive) {
    const int number = usable(handle).collectives++;
    add(handle, stream, [number, own = Address(own), receive = std::move(receive)](Joined& joined) {
      Meeting& meeting = *joined.meeting;
      std::unique_lock lock(meeting.mutex);
      std::map<int, at::Tensor>& all = meeting.collectives[number];
      all[joined.rank] = own.tensor().clone();
      meeting.changed.notify_all();
      const auto there = [&] { return static_cast<int>(all.size()) == meeting.size; };
      meeting.changed.wait(lock, [&] { return joined.aborted || there(); });
      if (!there()) return;
      std::vector<at::Tensor> parts;
      for (const auto& [rank, part] : all) parts.push_back(part);
      receive(parts);
    });
  }
  static at::Tensor reversed_sum(const std::vector<at::Tensor>& all) {
    at::Tensor sum = all.back();
    for (std::size_t i = all.size() - 1; i-- > 0;) sum = sum + all[i];
    return sum;
  }

  mutable std::mutex mutex_;
  mutable std::vector<std::string> log_;
  mutable std::map<std::string, std::shared_ptr<Meeting>> meetings_;
  mutable std::vector<std::unique_ptr<Joined>> joined_;
  mutable std::atomic<int> ids_ = 0;
};

}  // namespace strata

#include "strata/device/copy_stream.h"

#include <algorithm>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/measurement.h"

namespace strata {
namespace {

// The clocks of a device and the host drift by a few millionths.
constexpr double kCompareSeconds = 10;

// A copy that the executor submits to the stream later. Another queue that waits for it blocks
// until then.
class EnqueuedLater final : public DeviceEvent {
 public:
  void set_enqueued(Completion enqueued) { enqueued_ = std::move(enqueued); }
  void set_copied(Completion copied) { copied_ = std::move(copied); }  // before `given` completes
  bool is_enqueued() const { return enqueued_.ready(); }

  bool ready() const override { return enqueued_.ready() && copied_.ready(); }
  void wait() const override {
    enqueued_.wait();
    copied_.wait();
  }
  const DeviceEvent* on_device() const override {
    enqueued_.wait();
    return strata::on_device(copied_);
  }

 private:
  Completion enqueued_, copied_;
};

// Whether the stream can wait for the event, or it has ended. Does not query a device's event: it
// may belong to a recording.
bool needs_no_executor(const Completion& event) {
  if (const auto* later = dynamic_cast<const EnqueuedLater*>(event.source()))
    return later->is_enqueued();
  return on_device(event) || event.ready();
}

}  // namespace

CopyStream::CopyStream(Stream stream, TrackKind kind, TrackTrace* trace, Stream compute)
    : stream_(std::move(stream)), compute_(std::move(compute)), kind_(kind), trace_(trace) {
  STRATA_CHECK(stream_.queue(), "device.copy_stream");
  settle();
}

CopyStream::~CopyStream() {
  executor_.reset();
  try {
    stream_.synchronize();
    settle();
  } catch (const std::exception&) {
    // Callers that waited for a copy got the error.
  }
}

Completion CopyStream::copy(at::Tensor to, at::Tensor from, std::vector<Completion> after,
                            int layer) {
  STRATA_CHECK_EQ(to.nbytes(), from.nbytes(), "device.copy_stream");
  STRATA_CHECK(to.is_contiguous() && from.is_contiguous(), "device.copy_stream");
  if (enqueued_.ready() && std::ranges::all_of(after, needs_no_executor))
    return give(to, from, after, layer, compute_.queue() && compute_.queue()->recording());
  if (!executor_) executor_ = std::make_unique<Executor>(ExecutorOptions{.name = "copies"});
  auto later = std::make_shared<EnqueuedLater>();
  std::vector<Completion> hosts;
  std::ranges::remove_copy_if(after, std::back_inserter(hosts), needs_no_executor);
  // The executor holds the event only during its task; `copied` is read after the task has ended.
  enqueued_ = executor_->submit(
      [this, later, to = std::move(to), from = std::move(from), after = std::move(after), layer] {
        // Not recorded: the rank may be recording other work meanwhile.
        later->set_copied(give(to, from, after, layer, /*recorded=*/false));
      },
      std::move(hosts));
  later->set_enqueued(enqueued_);
  return Completion(std::move(later));
}

Completion CopyStream::give(const at::Tensor& to, const at::Tensor& from,
                            const std::vector<Completion>& after, int layer, bool recorded) {
  const std::lock_guard lock(mutex_);
  // Recorded copies do not run now: they have no time, and their events must not be queried.
  if (!recorded) settle();
  for (const Completion& event : after) stream_.wait(event);
  const bool timed = trace_ && !recorded;
  const EventTime time = timed ? EventTime::kKnown : EventTime::kUnknown;
  const Completion begin = timed ? stream_.record(time) : Completion();
  stream_.queue()->copy(to.data_ptr(), from.const_data_ptr(), from.nbytes());
  const Completion end = stream_.record(time);
  if (!recorded) running_.push_back({begin, end, kind_ == TrackKind::kToDevice ? from : to, layer});
  return end;
}

void CopyStream::settle() {
  while (!running_.empty() && running_.front().end.ready()) {
    const Running& done = running_.front();
    if (trace_) {
      const double begin = compared_seconds_ + seconds_between(compared_, done.begin);
      compared_seconds_ = begin + seconds_between(done.begin, done.end);
      compared_ = done.end;
      trace_->add({kind_, done.layer, begin, compared_seconds_});
    }
    running_.pop_front();
  }
  if (!trace_ || !running_.empty() || now_seconds() - compared_seconds_ < kCompareSeconds) return;
  compared_ = stream_.record(EventTime::kKnown);
  compared_.wait();
  compared_seconds_ = now_seconds();
}

}  // namespace strata

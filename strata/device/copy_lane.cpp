#include "strata/device/copy_lane.h"

#include <algorithm>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/measurement.h"

namespace strata {
namespace {

// A device's clock and the host's differ by some millionths.
constexpr double kCompareSeconds = 10;

// Of a copy that a thread gives later. Whoever waits for it on a device waits here until it is given.
class GivenLater final : public PendingEvent {
 public:
  void set_given(Event given) { given_ = std::move(given); }
  void set_copied(Event copied) { copied_ = std::move(copied); }  // before `given` happens
  bool is_given() const { return given_.query(); }

  bool query() const override { return given_.query() && copied_.query(); }
  void synchronize() const override {
    given_.synchronize();
    copied_.synchronize();
  }
  const PendingEvent* on_device() const override {
    given_.synchronize();
    return copied_.pending() ? copied_.pending()->on_device() : nullptr;
  }

 private:
  Event given_, copied_;
};

// The stream can wait for it, or it has happened. Nobody asks a device's event: it may be one of a recording.
bool needs_no_thread(const Event& event) {
  const PendingEvent* pending = event.pending();
  if (!pending) return true;
  if (const auto* later = dynamic_cast<const GivenLater*>(pending)) return later->is_given();
  return pending->on_device() || event.query();
}

}  // namespace

CopyLane::CopyLane(Stream stream, LaneKind kind, LaneTrace* trace, Stream compute)
    : stream_(std::move(stream)), compute_(std::move(compute)), kind_(kind), trace_(trace) {
  STRATA_CHECK(stream_.queue(), "device.copy_lane");
  settle();
}

CopyLane::~CopyLane() {
  thread_.reset();
  try {
    stream_.synchronize();
    settle();
  } catch (const std::exception&) {
    // Whoever waited for a copy knows.
  }
}

Event CopyLane::copy(at::Tensor to, at::Tensor from, std::vector<Event> after, int layer) {
  STRATA_CHECK_EQ(to.nbytes(), from.nbytes(), "device.copy_lane");
  STRATA_CHECK(to.is_contiguous() && from.is_contiguous(), "device.copy_lane");
  if (given_.query() && std::ranges::all_of(after, needs_no_thread))
    return give(to, from, after, layer, compute_.queue() && compute_.queue()->recording());
  if (!thread_) thread_ = std::make_unique<Lane>();
  auto later = std::make_shared<GivenLater>();
  std::vector<Event> hosts;
  std::ranges::remove_copy_if(after, std::back_inserter(hosts), needs_no_thread);
  // The thread holds the event only as long as its task; nobody reads `copied` before the task has ended.
  given_ = thread_->submit(
      [this, later, to = std::move(to), from = std::move(from), after = std::move(after), layer] {
        // The rank may record something else meanwhile.
        later->set_copied(give(to, from, after, layer, /*recorded=*/false));
      },
      std::move(hosts));
  later->set_given(given_);
  return Event(std::move(later));
}

Event CopyLane::give(const at::Tensor& to, const at::Tensor& from, const std::vector<Event>& after,
                     int layer, bool recorded) {
  const std::lock_guard lock(mutex_);
  // What is recorded is not done now, has no time, and must not be asked for.
  if (!recorded) settle();
  for (const Event& event : after) stream_.wait(event);
  const bool timed = trace_ && !recorded;
  const EventTime time = timed ? EventTime::kKnown : EventTime::kUnknown;
  const Event begin = timed ? stream_.record(time) : Event();
  stream_.queue()->copy(to.data_ptr(), from.const_data_ptr(), from.nbytes());
  const Event end = stream_.record(time);
  if (!recorded) running_.push_back({begin, end, kind_ == LaneKind::kToDevice ? from : to, layer});
  return end;
}

void CopyLane::settle() {
  while (!running_.empty() && running_.front().end.query()) {
    const Running& done = running_.front();
    if (trace_) {
      const double begin = compared_seconds_ + done.begin.seconds_since(compared_);
      compared_seconds_ = begin + done.end.seconds_since(done.begin);
      compared_ = done.end;
      trace_->add({kind_, done.layer, begin, compared_seconds_});
    }
    running_.pop_front();
  }
  if (!trace_ || !running_.empty() || now_seconds() - compared_seconds_ < kCompareSeconds) return;
  compared_ = stream_.record(EventTime::kKnown);
  compared_.synchronize();
  compared_seconds_ = now_seconds();
}

}  // namespace strata

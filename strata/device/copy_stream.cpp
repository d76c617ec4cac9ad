#include "strata/device/copy_stream.h"

#include <algorithm>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/measurement.h"

namespace strata {
namespace {

// A device's clock and the host's differ by some millionths.
constexpr double kCompareSeconds = 10;

// A copy that the executor gives to the stream later. A device's wait for it waits here until then.
class GivenLater final : public DeviceEvent {
 public:
  void set_given(Completion given) { given_ = std::move(given); }
  void set_copied(Completion copied) { copied_ = std::move(copied); }  // before `given` happens
  bool is_given() const { return given_.ready(); }

  bool ready() const override { return given_.ready() && copied_.ready(); }
  void wait() const override {
    given_.wait();
    copied_.wait();
  }
  const DeviceEvent* on_device() const override {
    given_.wait();
    return strata::on_device(copied_);
  }

 private:
  Completion given_, copied_;
};

// The stream can wait for it, or it has ended. A device's event is not queried: it may be one of a recording.
bool needs_no_executor(const Completion& event) {
  if (const auto* later = dynamic_cast<const GivenLater*>(event.source())) return later->is_given();
  return on_device(event) || event.ready();
}

}  // namespace

CopyStream::CopyStream(Stream stream, LaneKind kind, LaneTrace* trace, Stream compute)
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
    // Who waited for a copy got the error.
  }
}

Completion CopyStream::copy(at::Tensor to, at::Tensor from, std::vector<Completion> after,
                            int layer) {
  STRATA_CHECK_EQ(to.nbytes(), from.nbytes(), "device.copy_stream");
  STRATA_CHECK(to.is_contiguous() && from.is_contiguous(), "device.copy_stream");
  if (given_.ready() && std::ranges::all_of(after, needs_no_executor))
    return give(to, from, after, layer, compute_.queue() && compute_.queue()->recording());
  if (!executor_) executor_ = std::make_unique<Executor>(ExecutorOptions{.name = "copies"});
  auto later = std::make_shared<GivenLater>();
  std::vector<Completion> hosts;
  std::ranges::remove_copy_if(after, std::back_inserter(hosts), needs_no_executor);
  // The executor holds the event only as long as its task; `copied` is read after the task has ended.
  given_ = executor_->submit(
      [this, later, to = std::move(to), from = std::move(from), after = std::move(after), layer] {
        // The rank may record something else meanwhile.
        later->set_copied(give(to, from, after, layer, /*recorded=*/false));
      },
      std::move(hosts));
  later->set_given(given_);
  return Completion(std::move(later));
}

Completion CopyStream::give(const at::Tensor& to, const at::Tensor& from,
                            const std::vector<Completion>& after, int layer, bool recorded) {
  const std::lock_guard lock(mutex_);
  // What is recorded is not done now, has no time, and must not be asked for.
  if (!recorded) settle();
  for (const Completion& event : after) stream_.wait(event);
  const bool timed = trace_ && !recorded;
  const EventTime time = timed ? EventTime::kKnown : EventTime::kUnknown;
  const Completion begin = timed ? stream_.record(time) : Completion();
  stream_.queue()->copy(to.data_ptr(), from.const_data_ptr(), from.nbytes());
  const Completion end = stream_.record(time);
  if (!recorded) running_.push_back({begin, end, kind_ == LaneKind::kToDevice ? from : to, layer});
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

// Each rank's step is walked once, from its begin to its end, so every instant is counted once and
// the uses sum to the step. A wait is split where the message was produced: before that moment the
// sender was late (fill, drain or imbalance), after it the message was in transit.
#include "strata/report/idle.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "strata/base/enum_names.h"
#include "strata/report/device_time.h"

namespace strata {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// From the first begin to the last end; empty if the end precedes the begin.
struct Span {
  double begin = -kNever;
  double end = kNever;
  double seconds() const { return std::max(0.0, end - begin); }
  void add(const TraceEvent& event) {
    begin = std::min(begin, event.begin_seconds);
    end = std::max(end, event.end_seconds);
  }
};

// The compute events of one rank.
struct Computes {
  Span all, forwards, backwards;
};

bool is_compute(const TraceEvent& event) { return look_of(event.op).use == TimeUse::kCompute; }

// Whether the rank waits for an activation or a gradient of an adjacent stage.
bool is_message(Op op) { return op == Op::kReceiveActivation || op == Op::kReceiveGradient; }

// Fetches, offloads and embeddings.
bool is_wait_for_memory(Op op) {
  return op == Op::kPrefetchWeights || op == Op::kOffloadGradients || op == Op::kGatherWeights;
}

// Records when every stage worked on a micro-batch, and which ranks hold the stage.
class Senders {
 public:
  explicit Senders(const std::vector<std::vector<TraceEvent>>& ranks) {
    for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
      for (const TraceEvent& event : ranks[rank]) {
        if (!is_compute(event)) continue;
        std::vector<int>& holders = holders_[event.stage];
        if (holders.empty() || holders.back() != rank) holders.push_back(rank);
        if (event.op == Op::kBackwardWeight) continue;  // sends nothing
        // A recompute prepares the backward. A stage may run in parts; the last part sends.
        const bool forward = event.op == Op::kForward;
        work_[{rank, forward, event.stage, event.micro_batch}].add(event);
      }
    }
    for (const auto& [key, span] : work_) {
      double& longest = longest_[{std::get<1>(key), std::get<3>(key)}];
      longest = std::max(longest, span.seconds());
    }
  }

  // By how much the slowest stage takes longer than `rank` for the awaited work.
  double lag_seconds(int rank, const TraceEvent& wait) const {
    const bool forward = wait.op == Op::kReceiveActivation;
    const auto mine = work_.find({rank, forward, wait.stage, wait.micro_batch});
    const auto longest = longest_.find({forward, wait.micro_batch});
    if (mine == work_.end() || longest == longest_.end()) return 0;
    return longest->second - mine->second.seconds();
  }

  // When the awaited message was produced; kNever if no rank produced it.
  double made_seconds(int rank, const TraceEvent& wait) const {
    const bool forward = wait.op == Op::kReceiveActivation;
    const int stage = forward ? wait.stage - 1 : wait.stage + 1;
    const auto mine = holders_.find(wait.stage), theirs = holders_.find(stage);
    if (mine == holders_.end() || theirs == holders_.end()) return kNever;
    const auto place = std::ranges::find(mine->second, rank) - mine->second.begin();
    if (place >= static_cast<std::ptrdiff_t>(theirs->second.size())) return kNever;
    const auto found = work_.find({theirs->second[place], forward, stage, wait.micro_batch});
    return found == work_.end() ? kNever : found->second.end;
  }

 private:
  std::map<std::tuple<int, bool, int, int>, Span> work_;  // rank, forward, stage, micro-batch
  std::map<std::pair<bool, int>, double> longest_;        // forward, micro-batch
  std::map<int, std::vector<int>> holders_;               // the ranks of a stage, ascending
};

Computes computes_of(const std::vector<TraceEvent>& events) {
  Computes computes;
  for (const TraceEvent& event : events) {
    if (!is_compute(event)) continue;
    computes.all.add(event);
    if (event.op == Op::kForward) computes.forwards.add(event);
    if (makes_input_gradients(event.op) || ends_weight_gradients(event.op))
      computes.backwards.add(event);
  }
  return computes;
}

// When any track of a use is busy, in ascending order and without overlaps.
class BusyTracks {
 public:
  explicit BusyTracks(std::vector<TrackEvent> events) {
    std::ranges::sort(events, {}, &TrackEvent::begin_seconds);
    for (const TrackEvent& event : events) {
      if (event.track == TrackKind::kCommunicate)
        continue;  // the rank's own actions enqueued it (device_time.h)
      std::vector<Stretch>& busy =
          event.track == TrackKind::kCompute ? device_ : stretches_[rank_of(event.track)];
      if (busy.empty() || busy.back().end < event.begin_seconds) {
        busy.push_back({event.begin_seconds, event.end_seconds});
      } else {
        busy.back().end = std::max(busy.back().end, event.end_seconds);
      }
    }
  }

  // Whether the rank's device computes at `at`, and until when; always true without a track of it.
  std::pair<bool, double> device_at(double at) const {
    const auto next = std::ranges::upper_bound(device_, at, {}, &Stretch::end);
    if (device_.empty()) return {true, -kNever};
    if (next == device_.end()) return {false, -kNever};
    return next->begin <= at ? std::pair(true, next->end) : std::pair(false, next->begin);
  }

  // The cause of a wait at `at`, and until when it applies.
  std::pair<TimeUse, double> use_at(double at, TimeUse otherwise) const {
    double until = -kNever;
    for (std::size_t i = 0; i < stretches_.size(); ++i) {
      const std::vector<Stretch>& busy = stretches_[i];
      const auto next = std::ranges::upper_bound(busy, at, {}, &Stretch::end);
      if (next == busy.end()) continue;
      if (next->begin <= at) return {kUses[i], std::min(until, next->end)};
      until = std::min(until, next->begin);
    }
    return {otherwise, until};
  }

 private:
  struct Stretch {
    double begin, end;
  };
  // If several apply, the one nearest to the device is the cause.
  static constexpr std::array kUses{TimeUse::kLink, TimeUse::kHostUpdate, TimeUse::kDisk};

  static std::size_t rank_of(TrackKind track) {
    if (track == TrackKind::kToDevice || track == TrackKind::kToHost) return 0;
    return track == TrackKind::kUpdate ? 1 : 2;
  }

  std::array<std::vector<Stretch>, 3> stretches_;
  std::vector<Stretch> device_;
};

// Walks over one rank's step and records every interval.
class Walk {
 public:
  Walk(int rank, bool has_peers, const Senders& senders, const Computes& computes,
       BusyTracks tracks, double drained, double begin, double end)
      : rank_(rank),
        has_peers_(has_peers),
        senders_(senders),
        computes_(computes),
        tracks_(std::move(tracks)),
        drained_(drained),
        at_(begin),
        end_(end) {}

  TimeSplit along(std::vector<TraceEvent> events) {
    std::ranges::sort(events, {}, [](const TraceEvent& event) {
      return std::pair(event.begin_seconds, event.end_seconds);
    });
    TimeUse gap = TimeUse::kInput;
    for (const TraceEvent& event : events) {
      idle(event.begin_seconds, gap);
      gap = TimeUse::kOther;
      visit(event);
    }
    idle(end_, gap);
    return split_;
  }

 private:
  // From the current position to `until`.
  void spend(double until, TimeUse use) {
    until = std::min(until, end_);
    if (until <= at_) return;
    split_[use] += until - at_;
    at_ = until;
  }

  // After the rank's last compute the time counts as drain, until the drain ends.
  void idle(double until, TimeUse use) {
    if (at_ >= computes_.all.end && computes_.all.end > kNever)
      spend(std::min(until, drained_), TimeUse::kFillAndDrain);
    spend(until, use);
  }

  void visit(const TraceEvent& event) {
    const TimeUse use = look_of(event.op).use;
    if (is_work(use)) return work(event.end_seconds, use);
    if (is_message(event.op)) wait_for_sender(event);
    if (is_wait_for_memory(event.op))
      return wait_for_tracks(event.end_seconds, has_peers_ ? use : TimeUse::kOther);
    idle(event.end_seconds, use);
  }

  void work(double until, TimeUse use) {
    until = std::min(until, end_);
    while (at_ < until) {
      const auto [busy, holds] = tracks_.device_at(at_);
      spend(std::min(until, holds), busy ? use : TimeUse::kLaunch);
    }
  }

  void wait_for_tracks(double until, TimeUse otherwise) {
    until = std::min(until, end_);
    while (at_ < until) {
      const auto [use, holds] = tracks_.use_at(at_, otherwise);
      use == otherwise ? idle(std::min(until, holds), use) : spend(std::min(until, holds), use);
    }
  }

  // The part of the wait before the message was produced.
  void wait_for_sender(const TraceEvent& wait) {
    const double made = std::min(wait.end_seconds, senders_.made_seconds(rank_, wait));
    const bool first_gradient =
        wait.op == Op::kReceiveGradient && wait.begin_seconds < computes_.backwards.begin;
    if (wait.begin_seconds < computes_.all.begin || first_gradient)
      return spend(made, TimeUse::kFillAndDrain);
    if (wait.begin_seconds >= computes_.forwards.end)
      spend(made - std::max(0.0, senders_.lag_seconds(rank_, wait)), TimeUse::kFillAndDrain);
    spend(made, TimeUse::kImbalance);
  }

  int rank_;
  bool has_peers_;
  const Senders& senders_;
  const Computes& computes_;
  BusyTracks tracks_;
  double drained_;  // the end of the last compute of any rank
  double at_, end_;
  TimeSplit split_;
};

}  // namespace

static_assert(kNumTimeUses == count_enumerators<TimeUse>());

const char* name_of(TimeUse use) {
  using enum TimeUse;
  static constexpr EnumNames<TimeUse> kNames{
      {kCompute, "compute"},     {kUpdate, "update"},     {kFillAndDrain, "fill and drain"},
      {kImbalance, "imbalance"}, {kLink, "link"},         {kHostUpdate, "host update"},
      {kDisk, "disk"},           {kTransfer, "transfer"}, {kReduction, "reduction"},
      {kRows, "rows"},           {kLaunch, "launches"},   {kInput, "input"},
      {kOther, "other"}};
  return kNames[use];
}

bool is_work(TimeUse use) { return use == TimeUse::kCompute || use == TimeUse::kUpdate; }

namespace {

struct LookedAt {
  Op op;
  EventLook look;
};

constexpr EventLook kSend{TimeUse::kTransfer, "send", "send"};
constexpr EventLook kTied{TimeUse::kTransfer, "wait", "wait for a tied weight"};
constexpr EventLook kWeights{TimeUse::kTransfer, "wait", "wait for weights"};
constexpr EventLook kReplicas{TimeUse::kReduction, "wait", "sum of the replicas' gradients"};

// In the order of the enumerators.
constexpr LookedAt kLooks[] = {
    {Op::kForward, {TimeUse::kCompute, "forward", "forward"}},
    {Op::kRecompute, {TimeUse::kCompute, "recompute", "recompute"}},
    {Op::kBackward, {TimeUse::kCompute, "backward", "backward"}},
    {Op::kBackwardInput, {TimeUse::kCompute, "backward", "backward: gradients of inputs"}},
    {Op::kBackwardWeight,
     {TimeUse::kCompute, "weight-gradients", "backward: gradients of weights"}},
    {Op::kOffloadActivations,
     {TimeUse::kTransfer, "wait", "wait for activations on their way to the host"}},
    {Op::kFetchActivations, {TimeUse::kTransfer, "wait", "wait for activations of the host"}},
    {Op::kSendActivation, kSend},
    {Op::kReceiveActivation, {TimeUse::kTransfer, "wait", "wait for an activation"}},
    {Op::kSendGradient, kSend},
    {Op::kReceiveGradient, {TimeUse::kTransfer, "wait", "wait for a gradient"}},
    {Op::kSendTiedGradient, kSend},
    {Op::kReceiveTiedGradient, kTied},
    {Op::kAddTiedGradients, {TimeUse::kUpdate, "update", "sum of a tied weight's gradients"}},
    {Op::kPrefetchWeights, kWeights},
    {Op::kReleaseWeights, {TimeUse::kTransfer, "wait", "release of weights"}},
    {Op::kOffloadGradients,
     {TimeUse::kTransfer, "wait", "wait for gradients on their way to the host"}},
    {Op::kReduceGradients, kReplicas},
    {Op::kAwaitGradients, kReplicas},
    {Op::kReduceNormAndLoss, {TimeUse::kReduction, "wait", "gradient norm, of all ranks"}},
    {Op::kUpdate, {TimeUse::kUpdate, "update", "update"}},
    {Op::kGatherWeights, {TimeUse::kTransfer, "wait", "wait for weights of the replicas"}},
    {Op::kPrefetchRows, {TimeUse::kRows, "wait", "start of a read of embeddings"}},
    {Op::kFetchRows, {TimeUse::kRows, "wait", "wait for rows of embeddings"}},
    {Op::kSendRowGradients, {TimeUse::kRows, "wait", "start of an update of embeddings"}},
    {Op::kSendTiedWeight, kSend},
    {Op::kReceiveTiedWeight, kTied},
};

constexpr bool is_in_order() {
  for (int i = 0; i < kNumOps; ++i)
    if (kLooks[i].op != static_cast<Op>(i)) return false;
  return true;
}
static_assert(std::size(kLooks) == kNumOps && is_in_order());

}  // namespace

const EventLook& look_of(Op op) { return kLooks[static_cast<int>(op)].look; }

TimeSums sums_of(const TimeSplit& split) {
  using enum TimeUse;
  return {.work = split[kCompute] + split[kUpdate],
          .exposed_communication = split[kTransfer] + split[kReduction],
          .rank_waits = split[kFillAndDrain] + split[kImbalance],
          .memory_waits = split[kLink] + split[kHostUpdate] + split[kDisk] + split[kRows],
          .launch_waits = split[kLaunch],
          .other = split[kInput] + split[kOther]};
}

double TimeSplit::idle_seconds() const {
  double idle = 0;
  for (int use = 0; use < kNumTimeUses; ++use)
    if (!is_work(static_cast<TimeUse>(use))) idle += seconds[use];
  return idle;
}

std::vector<TimeSplit> attribute_time(const std::vector<std::vector<TraceEvent>>& ranks,
                                      double begin_seconds, double end_seconds,
                                      const std::vector<std::vector<TrackEvent>>& tracks) {
  const Senders senders(ranks);
  std::vector<Computes> computes;
  double drained = kNever;
  for (const std::vector<TraceEvent>& events : ranks) {
    computes.push_back(computes_of(events));
    drained = std::max(drained, computes.back().all.end);
  }
  std::vector<TimeSplit> splits;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    BusyTracks busy(rank < static_cast<int>(tracks.size()) ? tracks[rank]
                                                           : std::vector<TrackEvent>());
    Walk walk(rank, ranks.size() > 1, senders, computes[rank], std::move(busy), drained,
              begin_seconds, end_seconds);
    splits.push_back(walk.along(ranks[rank]));
  }
  return splits;
}

}  // namespace strata

/// Builds the timeline of a pipeline step and the report of an invented run, for tests and for
/// viewing.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "strata/report/page.h"

namespace strata {

struct ExamplePipeline {
  std::vector<double> forward_seconds;  ///< per stage; one stage per rank
  double backward_ratio = 2;            ///< time of a backward divided by that of a forward
  int micro_batches = 8;
  bool one_f_one_b = true;        ///< false: GPipe, all forwards, then all backwards
  double transfer_seconds = 0;    ///< for an activation or a gradient, between its two stages
  double update_seconds = 0;      ///< on every rank
  bool recomputes_first = false;  ///< recomputes a third of the first stage
  double begin_seconds = 0;
};

/// Performs the compute actions of all ranks in their order, each as early as its inputs allow.
class PipelineClock {
 public:
  explicit PipelineClock(const ExamplePipeline& pipeline)
      : pipeline_(pipeline),
        stages_(static_cast<int>(pipeline.forward_seconds.size())),
        now_(stages_, pipeline.begin_seconds) {
    timeline_.begin_seconds = pipeline.begin_seconds;
    timeline_.ranks.resize(stages_);
  }

  ReportTimeline run() {
    std::vector<std::vector<std::pair<Op, int>>> orders;
    for (int stage = 0; stage < stages_; ++stage) orders.push_back(order_of(stage));
    std::vector<std::size_t> next(stages_, 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < stages_; ++stage) {
        while (next[stage] < orders[stage].size() && perform(stage, orders[stage][next[stage]])) {
          ++next[stage];
          moved = true;
        }
      }
    }
    finish();
    return timeline_;
  }

 private:
  std::vector<std::pair<Op, int>> order_of(int stage) const {
    const int all = pipeline_.micro_batches;
    const int warm = pipeline_.one_f_one_b ? std::min(stages_ - stage, all) : all;
    std::vector<std::pair<Op, int>> order;
    for (int i = 0; i < warm; ++i) order.emplace_back(Op::kForward, i);
    for (int i = 0; i < all; ++i) {
      order.emplace_back(Op::kBackward, i);
      if (warm + i < all) order.emplace_back(Op::kForward, warm + i);
    }
    return order;
  }

  void add(int stage, Op op, int micro_batch, double end) {
    timeline_.ranks[stage].push_back({op, stage, micro_batch, -1, now_[stage], end});
    now_[stage] = end;
  }

  // Returns false while the adjacent stage has not produced what the work needs.
  bool perform(int stage, std::pair<Op, int> work) {
    const auto [op, micro_batch] = work;
    const bool forward = op == Op::kForward;
    const int sender = forward ? stage - 1 : stage + 1;
    if (sender >= 0 && sender < stages_) {
      const auto made = made_.find({op, sender, micro_batch});
      if (made == made_.end()) return false;
      add(stage, forward ? Op::kReceiveActivation : Op::kReceiveGradient, micro_batch,
          std::max(now_[stage], made->second + pipeline_.transfer_seconds));
    }
    const double seconds = pipeline_.forward_seconds[stage];
    if (forward) {
      add(stage, Op::kForward, micro_batch, now_[stage] + seconds);
    } else if (stage == 0 && pipeline_.recomputes_first) {
      const double third = pipeline_.backward_ratio * seconds / 3;
      add(stage, Op::kBackward, micro_batch, now_[stage] + third);
      add(stage, Op::kRecompute, micro_batch, now_[stage] + seconds / 3);
      add(stage, Op::kBackward, micro_batch, now_[stage] + 2 * third);
    } else {
      add(stage, Op::kBackward, micro_batch, now_[stage] + pipeline_.backward_ratio * seconds);
    }
    made_[{op, stage, micro_batch}] = now_[stage];
    return true;
  }

  void finish() {
    const double last = *std::max_element(now_.begin(), now_.end());
    for (int stage = 0; stage < stages_; ++stage) {
      add(stage, Op::kReduceNormAndLoss, -1, last);
      if (pipeline_.update_seconds > 0)
        add(stage, Op::kUpdate, -1, last + pipeline_.update_seconds);
    }
    timeline_.step_seconds = last + pipeline_.update_seconds - pipeline_.begin_seconds;
  }

  ExamplePipeline pipeline_;
  int stages_;
  std::vector<double> now_;
  std::map<std::tuple<Op, int, int>, double> made_;  // forward or backward, stage, micro-batch
  ReportTimeline timeline_;
};

inline ReportTimeline pipeline_step(const ExamplePipeline& pipeline) {
  return PipelineClock(pipeline).run();
}

/// One 1F1B step of `ranks` stages; `stretch` scales all times.
inline ReportTimeline example_step(int ranks, int micro_batches, double stretch,
                                   double begin_seconds) {
  return pipeline_step({.forward_seconds = std::vector<double>(ranks, 0.06 * stretch),
                        .backward_ratio = 2.1,
                        .micro_batches = micro_batches,
                        .transfer_seconds = 0.0004 * stretch,
                        .update_seconds = 0.036 * stretch,
                        .recomputes_first = true,
                        .begin_seconds = begin_seconds});
}

/// A step of one rank whose layers live on the host, two at a time on the device: fetched one
/// ahead, gradients offloaded after each backward, updates during the next forward, and a wait for
/// the link. `stretch` scales all times.
inline ReportTimeline example_offloaded_step(int layers, double stretch, double begin_seconds) {
  const double forward = 0.05 * stretch, fetch = 0.06 * stretch, update = 0.03 * stretch;
  ReportTimeline timeline{.ranks = {{}}, .tracks = {{}}, .begin_seconds = begin_seconds};
  std::vector<TraceEvent>& rank = timeline.ranks[0];
  std::vector<TrackEvent>& tracks = timeline.tracks[0];
  double now = begin_seconds, link = begin_seconds, optimizer = begin_seconds;
  const auto compute = [&](Op op, int layer, double seconds) {
    if (link > now) rank.push_back({Op::kPrefetchWeights, 0, 0, layer, now, link});
    now = std::max(now, link);
    rank.push_back({op, 0, 0, layer, now, now + seconds});
    now += seconds;
  };
  for (int layer = 0; layer < layers; ++layer) {
    tracks.push_back({TrackKind::kUpdate, layer, optimizer, optimizer + update});
    optimizer += update;
    link = std::max(link, optimizer);
    tracks.push_back({TrackKind::kToDevice, layer, link, link + fetch});
    link += fetch;
    compute(Op::kForward, layer, forward);
  }
  for (int layer = layers - 1; layer >= 0; --layer) {
    if (layer < layers - 2) tracks.push_back({TrackKind::kToDevice, layer, now - forward, now});
    compute(Op::kBackward, layer, 2.1 * forward);
    tracks.push_back({TrackKind::kToHost, layer, now, now + fetch});
  }
  rank.push_back({Op::kOffloadGradients, 0, 0, 0, now, now + fetch});
  rank.push_back({Op::kReduceNormAndLoss, -1, -1, -1, now + fetch, now + 1.2 * fetch});
  timeline.step_seconds = now + 1.2 * fetch - begin_seconds;
  return timeline;
}

/// A step of two replicas with a device each. Hosts enqueue forwards and backwards ahead of the
/// devices, gradients are exchanged after each layer's backward, and a device waits for its host
/// before the first layer and between two others. `stretch` scales all times.
inline ReportTimeline example_device_step(int layers, double stretch, double begin_seconds) {
  const double work = 0.004 * stretch, launch = 0.0012 * stretch, exchange = 0.009 * stretch;
  ReportTimeline timeline{.ranks = {{}, {}}, .tracks = {{}, {}}, .begin_seconds = begin_seconds};
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<TrackEvent>& tracks = timeline.tracks[rank];
    double host = begin_seconds, device = begin_seconds, link = begin_seconds;
    const auto give = [&](Op op, int layer, double seconds) {
      timeline.ranks[rank].push_back({op, 0, 0, layer, host, host + launch});
      host += launch;
      if (layer == 3 && rank == 1) device += 0.005 * stretch;  // enqueued late
      device = std::max(device, host);
      tracks.push_back({TrackKind::kCompute, layer, device, device + seconds});
      device += seconds;
    };
    for (int layer = 0; layer < layers; ++layer) give(Op::kForward, layer, work);
    for (int layer = layers - 1; layer >= 0; --layer) {
      give(Op::kBackward, layer, 2 * work);
      link = std::max(link, device);
      tracks.push_back({TrackKind::kCommunicate, layer, link, link + exchange});
      link += exchange;
    }
    timeline.ranks[rank].push_back({Op::kReduceNormAndLoss, -1, -1, -1, host, link});
    timeline.ranks[rank].push_back({Op::kUpdate, -1, -1, 0, link, link + work});
    tracks.push_back({TrackKind::kCompute, 0, link, link + work});
    timeline.step_seconds = std::max(timeline.step_seconds, link + work - begin_seconds);
  }
  return timeline;
}

inline std::vector<StepRecord> example_records(int steps) {
  std::vector<StepRecord> records;
  for (int i = 1; i <= steps; ++i) {
    const double noise = 0.05 * std::sin(12.9898 * i) * std::cos(78.233 * i);
    StepRecord record{.step = i,
                      .loss = 1.72 + 3.85 * std::exp(-i / 45.0) + noise,
                      .gradient_norm = 0.9,
                      .units_per_second = 5230.0 + 40 * std::sin(i),
                      .step_seconds = 1.566,
                      .bubble = 0.132};
    record.peak_bytes = {432'000'000, 318'000'000};
    if (i % 50 == 0) record.validation_loss = 1.79 + 3.85 * std::exp(-i / 45.0);
    records.push_back(record);
  }
  return records;
}

inline ReportInput example_report(int ranks = 2, int micro_batches = 8, int steps = 400) {
  ReportInput input{.title = "GPT, 10.7 M weights"};
  input.facts = {{"model", "6 layers, width 384, 6 heads, context 256"},
                 {"mesh", std::to_string(ranks) + " stages, 1 thread each"},
                 {"schedule", "1f1b, " + std::to_string(micro_batches) + " micro-batches of 4"},
                 {"recompute", "auto: 1 of 8 layers"},
                 {"data", "data/kjv.txt, bytes"},
                 {"machine", "2 cores, AVX2"}};
  input.records = example_records(steps);
  input.validation_loss = 1.7931;
  input.predicted = example_step(ranks, micro_batches, 1.0, 0);
  input.measured = example_step(ranks, micro_batches, 1.06, 5000);
  input.step_seconds = {input.predicted.step_seconds, input.measured.step_seconds};
  input.bubble = {0.121, 0.132};
  input.measured_step = steps;
  constexpr std::int64_t kMiB = 1 << 20;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t saved = (ranks - rank) * 92 * kMiB;
    input.memory.push_back({.kinds = {{"weights", 21 * kMiB},
                                      {"gradients", 21 * kMiB},
                                      {"optimizer states", 42 * kMiB},
                                      {"tied copies", rank == 0 ? 0 : 2 * kMiB},
                                      {"saved for backward", saved},
                                      {"values", 14 * kMiB},
                                      {"transients", 26 * kMiB},
                                      {"batch", kMiB / 8}},
                            .predicted_peak = (124 + 2 * (rank != 0)) * kMiB + saved + kMiB / 8,
                            .measured_peak = 127 * kMiB + saved});
  }
  input.budget_bytes = 512 * kMiB;
  input.prompt = "And God said";
  input.sample =
      " unto them, Behold, I will bring the words of the LORD thy God, and ye shall not hearken "
      "unto "
      "the voice of the people.\n\n1:14 And the king of Israel said unto David, Go up against the "
      "city, and smite it: for the LORD hath given it into thine hand.\n\n1:15 Then they took him, "
      "and brought him before the congregation, and all the elders of the land stood by the altar.";
  input.appendices = {{"Recipe", "model:  {kind: gpt, layers: 6, width: 384}\nmesh:   {pp: 2}"},
                      {"Plan", "rank 0: F0 F1 B0 F2 B1\nrank 1: .  F0 B0 F1 B1"}};
  return input;
}

/// The card with that id, or that title; null: the page has none.
inline nlohmann::json card_of(const ReportInput& input, const std::string& name) {
  for (const Card& card : page_of(input).cards)
    if (card.id == name || card.title == name) return card;
  return nullptr;
}

/// The parts of a card's bars in their order, such as {"rank": "rank 0", "bar": "measured",
/// "style": "use0", "title": "...", "percent": 12.5}.
inline std::vector<nlohmann::json> segments_of(const nlohmann::json& card) {
  std::vector<nlohmann::json> segments;
  for (const nlohmann::json& row : card["bars"])
    for (const nlohmann::json& bar : row["bars"])
      for (nlohmann::json segment : bar["segments"]) {
        segment["rank"] = row["name"];
        segment["bar"] = bar["style"];
        segments.push_back(segment);
      }
  return segments;
}

/// The spans of a timeline's card in their order, with their "rank", "row" and "side".
inline std::vector<nlohmann::json> spans_of(const nlohmann::json& card) {
  std::vector<nlohmann::json> spans;
  for (const nlohmann::json& rank : card["timeline"]["ranks"])
    for (const nlohmann::json& row : rank["rows"])
      for (const nlohmann::json& side : row["sides"])
        for (nlohmann::json span : side["spans"]) {
          span["rank"] = rank["name"];
          span["row"] = row["name"];
          span["side"] = side["name"];
          spans.push_back(span);
        }
  return spans;
}

/// How many of the objects have that value.
inline std::int64_t count_with(const std::vector<nlohmann::json>& objects, const char* key,
                               const std::string& value) {
  return std::ranges::count_if(objects, [&](const auto& each) { return each[key] == value; });
}

}  // namespace strata

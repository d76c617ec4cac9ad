// Events are sent as a tensor of fp64 [events, 6]: operation, stage, micro-batch, first layer,
// begin and end seconds; those of tracks as [events, 4]: track, layer, begin and end seconds.
// Layers' seconds are added together with the number of ranks that measured them.
#include "strata/train/measurements.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <utility>

#include "strata/device/device.h"
#include "strata/schedule/action.h"
#include "strata/train/step_sums.h"

namespace strata {
namespace {

constexpr int kEventNumbers = 6;

at::Tensor encode_events(const std::vector<TraceEvent>& events) {
  at::Tensor encoded = at::empty({static_cast<std::int64_t>(events.size()), kEventNumbers},
                                 host_options(at::kDouble));
  double* to = encoded.data_ptr<double>();
  for (const TraceEvent& event : events) {
    for (const double number :
         {static_cast<double>(event.op), static_cast<double>(event.stage),
          static_cast<double>(event.micro_batch), static_cast<double>(event.first_layer),
          event.begin_seconds, event.end_seconds})
      *to++ = number;
  }
  return encoded;
}

std::vector<TraceEvent> decode_events(const at::Tensor& encoded) {
  std::vector<TraceEvent> events(encoded.size(0));
  const double* from = encoded.const_data_ptr<double>();
  for (TraceEvent& event : events) {
    event = {static_cast<Op>(static_cast<int>(from[0])),
             static_cast<int>(from[1]),
             static_cast<int>(from[2]),
             static_cast<int>(from[3]),
             from[4],
             from[5]};
    from += kEventNumbers;
  }
  return events;
}

constexpr int kTrackNumbers = 4;

at::Tensor encode_tracks(const std::vector<TrackEvent>& events) {
  at::Tensor encoded = at::empty({static_cast<std::int64_t>(events.size()), kTrackNumbers},
                                 host_options(at::kDouble));
  double* to = encoded.data_ptr<double>();
  for (const TrackEvent& event : events)
    for (const double number : {static_cast<double>(event.track), static_cast<double>(event.layer),
                                event.begin_seconds, event.end_seconds})
      *to++ = number;
  return encoded;
}

std::vector<TrackEvent> decode_tracks(const at::Tensor& encoded) {
  std::vector<TrackEvent> events(encoded.size(0));
  const double* from = encoded.const_data_ptr<double>();
  for (TrackEvent& event : events) {
    event = {static_cast<TrackKind>(static_cast<int>(from[0])), static_cast<int>(from[1]), from[2],
             from[3]};
    from += kTrackNumbers;
  }
  return events;
}

}  // namespace

void gather_steps(Group& group, std::vector<MeasuredStep>& steps) {
  for (std::size_t step = 0; step < steps.size(); ++step) {
    const MessageTag events{.value = static_cast<std::int32_t>(2 * step)};
    const MessageTag tracks{.value = static_cast<std::int32_t>(2 * step + 1)};
    if (group.rank() > 0) {
      group.send(0, events, encode_events(steps[step].ranks[0]));
      group.send(0, tracks, encode_tracks(steps[step].tracks[0]));
    }
    for (int peer = 1; group.rank() == 0 && peer < group.size(); ++peer) {
      steps[step].ranks.push_back(decode_events(group.receive(peer, events)));
      steps[step].tracks.push_back(decode_tracks(group.receive(peer, tracks)));
    }
  }
}

std::vector<TrackEvent> tracks_during(const std::vector<MeasuredStep>& steps, std::size_t step,
                                      int rank) {
  const auto [begin, end] = std::pair(steps[step].begin_seconds, steps[step].end_seconds);
  std::vector<TrackEvent> during;
  for (const MeasuredStep& measured : steps) {
    for (TrackEvent event : measured.tracks[rank]) {
      event.begin_seconds = std::max(event.begin_seconds, begin);
      event.end_seconds = std::min(event.end_seconds, end);
      if (event.end_seconds > event.begin_seconds) during.push_back(event);
    }
  }
  return during;
}

std::vector<LayerSeconds> gather_layer_seconds(Group& group, const LayerTimes& own,
                                               int num_layers) {
  std::vector<std::array<std::int64_t, kNumLayerParts>> ranks(num_layers);
  std::vector<LayerSeconds> layers(num_layers);
  StepSums sums(group);
  for (int layer = 0; layer < num_layers; ++layer) {
    const LayerSeconds seconds = own.of(layer);
    for (int part = 0; part < kNumLayerParts; ++part) {
      const bool measured = seconds.parts[part].samples > 0;
      const Timing mine = measured ? seconds.parts[part] : Timing{};
      Timing& all = layers[layer].parts[part];
      sums.sum(std::int64_t{measured}, &ranks[layer][part]);
      sums.sum(mine.seconds, &all.seconds);
      sums.sum(mine.spread, &all.spread);
      sums.sum(mine.samples, &all.samples);
    }
  }
  sums.share();
  if (group.rank() > 0) return {};
  for (int layer = 0; layer < num_layers; ++layer) {
    for (int part = 0; part < kNumLayerParts; ++part) {
      const auto measured_by = static_cast<double>(std::max<std::int64_t>(1, ranks[layer][part]));
      layers[layer].parts[part].seconds /= measured_by;
      layers[layer].parts[part].spread /= measured_by;
    }
  }
  return layers;
}

}  // namespace strata

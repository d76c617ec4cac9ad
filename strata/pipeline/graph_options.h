/// Options for recording a rank's steps: train.graph, and what it depends on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "strata/device/recording.h"

namespace strata {

enum class GraphMode : std::uint8_t {
  /// records if launches cost time and the step can be recorded; otherwise reports once why not
  kAuto,
  kOn,  ///< fails if the step cannot be recorded
  kOff,
};
const char* name_of(GraphMode mode);  ///< "auto", "on", "off"

struct GraphOptions {
  GraphMode mode = GraphMode::kAuto;
  /// Ranks on one GPU share its stream and would record each other's work.
  bool shares_device = false;
  bool on_every_device = false;  ///< auto records on a CPU, too; for tests
  /// receives the reason why nothing is recorded; null: not reported
  std::function<void(const std::string&)> report = {};
  std::function<std::unique_ptr<Recording>(Device)> make_recording = strata::make_recording;
};

}  // namespace strata

/// Chooses when a rank's steps are recorded: train.graph, and what that depends on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "strata/device/recording.h"

namespace strata {

enum class GraphMode : std::uint8_t {
  kAuto,  ///< where launches cost something and nothing is in the way; else it says why, once
  kOn,    ///< refused where it cannot be
  kOff,
};
const char* name_of(GraphMode mode);  ///< "auto", "on", "off"

struct GraphOptions {
  GraphMode mode = GraphMode::kAuto;
  /// Ranks on one GPU share its stream, and would record one another.
  bool shares_device = false;
  bool on_every_device = false;  ///< auto records on a CPU, too: for tests of what auto does
  std::function<void(const std::string&)> say = {};  ///< why nothing is recorded; null: nobody asks
  std::function<std::unique_ptr<Recording>(Device)> make_recording = strata::make_recording;
};

}  // namespace strata

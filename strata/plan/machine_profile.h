/// Says what a machine has and how fast it is: what `strata doctor` measures here, and what a file says
/// about a machine elsewhere, so that plans can be made for it.
///
/// Units   bytes; a second, where a rate. 0: nobody knows; plans then take what they assume.
/// Errors  UserError: a file that cannot be read; what base/options refuses.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "strata/base/options.h"
#include "strata/base/units.h"

namespace strata {

struct MachineProfile {
  std::string name;
  struct {
    Bytes bytes, bandwidth;               ///< of one rank's device
    double fp32 = 0, bf16 = 0, fp16 = 0;  ///< operations a second, of large products
  } device = {};
  struct {
    Bytes to_device, to_host;
    double latency = 0;  ///< seconds of every transfer
  } link = {};
  struct {
    Bytes bytes;
    std::int64_t cores = 0;
    Bytes copy, triad;              ///< read and written together
    Bytes update, update_one_core;  ///< of AdamW in fp32, 28 bytes an element
  } host = {};
  struct {
    Bytes bytes, read, write;
  } disk = {};
};

void describe(OptionSet& set, MachineProfile& machine);

/// YAML, or the JSON that to_json() made.
MachineProfile parse_machine(const std::string& text, const std::string& name);
MachineProfile load_machine(const std::string& path);

/// What is known.
nlohmann::json to_json(const MachineProfile& machine);

}  // namespace strata

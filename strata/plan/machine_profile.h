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

/// A GPU's device has bytes and seconds of its own beside those of the model (plan/gpu_costs.h).
enum class MachineKind : std::uint8_t { kCpu, kCuda };
const char* name_of(MachineKind kind);  ///< "cpu", "cuda"

/// What a host keeps for its system (2 GiB) and for a process with libtorch, CUDA's libraries and what they pin (4 GiB),
/// where a machine's file says nothing else. An assumption: it was not measured on a machine with a GPU.
inline constexpr Bytes kHostReserve{std::int64_t{6} << 30};

struct MachineProfile {
  std::string name;
  std::string source;  ///< of the rates, if nobody has measured them here: "published"
  struct {
    Bytes bytes, bandwidth;               ///< of one rank's device
    double fp32 = 0, bf16 = 0, fp16 = 0;  ///< operations a second, of large products
    MachineKind kind = MachineKind::kCpu;
    std::int64_t multiprocessors = 0;
    Bytes context;            ///< of the driver and its libraries, before the first tensor
    Bytes workspace;          ///< of products, a stream
    double launch = 0;        ///< seconds of the host to give it one kernel of an operator
    double graph_launch = 0;  ///< and a recorded segment
    double peak = 0;  ///< operations a second in 16 bit by its data sheet, which nobody reaches
  } device = {};
  struct {
    std::int64_t devices = 0;  ///< of one machine
    Bytes bandwidth;           ///< that one sends to another, a second
  } peers = {};
  struct {
    Bytes to_device, to_host;
    double latency = 0;  ///< seconds of every transfer
  } link = {};
  struct {
    Bytes bytes;
    Bytes reserve = kHostReserve;  ///< of these, for the system and the process
    std::int64_t cores = 0;
    Bytes copy, triad;              ///< read and written together
    Bytes update, update_one_core;  ///< of AdamW in fp32, 28 bytes an element
  } host = {};
  struct {
    Bytes bytes, read, write;
  } disk = {};
  struct {
    Bytes bandwidth;     ///< that one device or rank sends to another machine, a second
    double latency = 0;  ///< seconds, one way
  } network = {};
};

void describe(OptionSet& set, MachineProfile& machine);

/// A GPU that everybody knows, "h100", by its published rates; or a file. Errors name both.
MachineProfile find_machine(const std::string& name_or_path);

/// YAML, or the JSON that to_json() made.
MachineProfile parse_machine(const std::string& text, const std::string& name);
MachineProfile load_machine(const std::string& path);

/// What is known.
nlohmann::json to_json(const MachineProfile& machine);

}  // namespace strata

/// Describes a machine: its memory and rates, as measured by `strata doctor` or read from a file
/// about another machine, so that plans can be made for it.
///
/// Units   bytes; bytes per second for rates. 0: unknown; plans then use a default.
/// Errors  UserError: a file that cannot be read; what base/options rejects.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "strata/base/options.h"
#include "strata/base/units.h"

namespace strata {

/// A GPU adds bytes and seconds of its own to those of the model (plan/search/gpu_costs.h).
enum class MachineKind : std::uint8_t { kCpu, kCuda };
const char* name_of(MachineKind kind);  ///< "cpu", "cuda"

/// Host memory reserved for the system (2 GiB) and for a process with libtorch, CUDA's libraries
/// and their pinned memory (4 GiB), if a machine's file does not set it. An assumption: it was not
/// measured on a machine with a GPU.
inline constexpr Bytes kHostReserve{std::int64_t{6} << 30};

struct MachineProfile {
  std::string name;
  std::string source;  ///< the source of the rates, if they were not measured here: "published"
  struct {
    Bytes bytes, bandwidth;               ///< memory and memory bandwidth of one rank's device
    double fp32 = 0, bf16 = 0, fp16 = 0;  ///< operations a second, of large products
    MachineKind kind = MachineKind::kCpu;
    std::int64_t multiprocessors = 0;
    Bytes context;            ///< memory of the driver and its libraries, before the first tensor
    Bytes workspace;          ///< workspace of the product library, per stream
    double launch = 0;        ///< host seconds to enqueue one kernel of an operator
    double graph_launch = 0;  ///< host seconds to enqueue a recorded segment
    /// operations per second in 16 bit by its data sheet, higher than programs reach
    double peak = 0;
  } device = {};
  struct {
    std::int64_t devices = 0;  ///< devices of one machine
    Bytes bandwidth;           ///< from one device to another, per second
  } peers = {};
  struct {
    Bytes to_device, to_host;
    double latency = 0;  ///< fixed seconds of every transfer
  } link = {};
  struct {
    Bytes bytes;
    /// part of `bytes` that is reserved for the system and the process
    Bytes reserve = kHostReserve;
    std::int64_t cores = 0;
    Bytes copy, triad;              ///< bytes read and written together
    Bytes update, update_one_core;  ///< AdamW in fp32, 28 bytes per element
  } host = {};
  struct {
    Bytes bytes, read, write;
  } disk = {};
  struct {
    Bytes bandwidth;     ///< from one device or rank to another machine, per second
    double latency = 0;  ///< seconds, one direction
  } network = {};
};

void describe(OptionSet& set, MachineProfile& machine);

/// Returns a well-known GPU by name, such as "h100", with its published rates, or reads a file.
/// Errors name both.
MachineProfile find_machine(const std::string& name_or_path);

/// Parses YAML, or the JSON of to_json().
MachineProfile parse_machine(const std::string& text, const std::string& name);
MachineProfile load_machine(const std::string& path);

/// Writes the known fields.
nlohmann::json to_json(const MachineProfile& machine);

}  // namespace strata

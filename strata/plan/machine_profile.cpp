#include "strata/plan/machine_profile.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr double kMostCores = 1 << 16;
constexpr double kMostLinkLatency = 1;
constexpr double kMostOperations = 1e18;

}  // namespace

void describe(OptionSet& set, MachineProfile& machine) {
  const auto bytes = [&](const std::string& path, Bytes* target, const std::string& help) {
    set.add(path, target, {.help = help, .unit = "bytes", .minimum = 0});
  };
  const auto operations = [&](const std::string& path, double* target) {
    set.add(path, target,
            {.help = "Operations a second of large products",
             .unit = "FLOP/s",
             .minimum = 0,
             .maximum = kMostOperations});
  };
  set.add("name", &machine.name, {.help = "What the machine is"});
  bytes("device.bytes", &machine.device.bytes, "Memory of one device");
  bytes("device.bandwidth", &machine.device.bandwidth, "Of its memory, a second");
  operations("device.fp32", &machine.device.fp32);
  operations("device.bf16", &machine.device.bf16);
  operations("device.fp16", &machine.device.fp16);
  bytes("link.to_device", &machine.link.to_device, "From host memory, a second");
  bytes("link.to_host", &machine.link.to_host, "To host memory, a second");
  set.add("link.latency", &machine.link.latency,
          {.help = "Of every transfer beside its bytes",
           .unit = "s",
           .minimum = 0,
           .maximum = kMostLinkLatency});
  bytes("host.bytes", &machine.host.bytes, "Host memory of one rank");
  set.add("host.cores", &machine.host.cores,
          {.help = "Cores of the host", .unit = "cores", .minimum = 0, .maximum = kMostCores});
  bytes("host.copy", &machine.host.copy, "Bytes read and written by a copy, a second");
  bytes("host.triad", &machine.host.triad, "Bytes read and written by a = b + s c, a second");
  bytes("host.update", &machine.host.update,
        "Bytes read and written by AdamW in fp32 on all cores, a second");
  bytes("host.update_one_core", &machine.host.update_one_core, "The same on one core");
  bytes("disk.bytes", &machine.disk.bytes, "Space of one rank");
  bytes("disk.read", &machine.disk.read, "Past the page cache, a second");
  bytes("disk.write", &machine.disk.write, "The same, written");
}

MachineProfile parse_machine(const std::string& text, const std::string& name) {
  MachineProfile machine;
  OptionSet set;
  describe(set, machine);
  set.load_yaml(text, name);
  if (machine.name.empty()) machine.name = name;
  return machine;
}

MachineProfile load_machine(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file.is_open() || text.str().empty()) {
    throw UserError({.operation = "plan.machine",
                     .where = path,
                     .what = "the machine's file cannot be read",
                     .expected = "a YAML file, or what `strata doctor --save` has written",
                     .got = "no readable file",
                     .fix = "name an existing one, such as machines/v100-stronghold.yaml"});
  }
  return parse_machine(text.str(), path);
}

nlohmann::json to_json(const MachineProfile& machine) {
  nlohmann::json json = nlohmann::json::object();
  const auto put = [&](const char* section, const char* field, const auto& value) {
    if (value > 0) json[section][field] = value;
  };
  if (!machine.name.empty()) json["name"] = machine.name;
  put("device", "bytes", machine.device.bytes.count);
  put("device", "bandwidth", machine.device.bandwidth.count);
  put("device", "fp32", machine.device.fp32);
  put("device", "bf16", machine.device.bf16);
  put("device", "fp16", machine.device.fp16);
  put("link", "to_device", machine.link.to_device.count);
  put("link", "to_host", machine.link.to_host.count);
  put("link", "latency", machine.link.latency);
  put("host", "bytes", machine.host.bytes.count);
  put("host", "cores", machine.host.cores);
  put("host", "copy", machine.host.copy.count);
  put("host", "triad", machine.host.triad.count);
  put("host", "update", machine.host.update.count);
  put("host", "update_one_core", machine.host.update_one_core.count);
  put("disk", "bytes", machine.disk.bytes.count);
  put("disk", "read", machine.disk.read.count);
  put("disk", "write", machine.disk.write.count);
  return json;
}

}  // namespace strata

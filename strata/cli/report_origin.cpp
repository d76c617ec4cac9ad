#include "strata/cli/report_origin.h"

#include <algorithm>
#include <ctime>

#include "strata/base/units.h"
#include "strata/cli/version.h"
#include "strata/device/device.h"
#include "strata/measure/processor.h"
#include "strata/transport/rendezvous.h"

namespace strata {
namespace {

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &utc);
  return text;
}

}  // namespace

std::string machine_text(const Recipe& recipe) {
  const ProcessorIdentity processor = ProcessorIdentity::of_this_machine();
  const std::string host = processor.model + ", " + std::to_string(processor.cores) +
                           (processor.cores == 1 ? " core, " : " cores, ") +
                           format_bytes(cpu_backend().facts(0).bytes);
  if (recipe.device_kind() != DeviceKind::kCuda) return host;
  const int gpus = std::min(cuda_backend().count(), recipe.mesh.axes.size());
  const DeviceFacts gpu = cuda_backend().facts(0);
  return (gpus > 1 ? std::to_string(gpus) + " x " : "") + gpu.name + ", " +
         format_bytes(gpu.bytes) + "; " + host;
}

std::vector<std::pair<std::string, std::string>> report_origin(const Recipe& recipe,
                                                               const std::string& source) {
  // With several processes, rank 0's writes reports; others may run on other machines.
  const bool alone = rendezvous_from_environment().alone();
  return {{alone ? "machine" : "machine of rank 0", machine_text(recipe)},
          {"made", utc_now()},
          {"program", std::string("strata ") + kVersion},
          {"recipe", source}};
}

}  // namespace strata

#include "strata/device/host_memory.h"

#include <fstream>
#include <string>

#include "strata/device/device.h"

namespace strata {

std::int64_t free_host_bytes() {
  std::ifstream facts("/proc/meminfo");
  for (std::string name, rest; facts >> name; std::getline(facts, rest)) {
    std::int64_t kibibytes = 0;
    if (name == "MemAvailable:" && facts >> kibibytes) return kibibytes << 10;
  }
  return cpu_backend().facts(0).bytes;
}

}  // namespace strata

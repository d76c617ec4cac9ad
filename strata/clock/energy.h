/// Reads how much energy the processors of this machine have used, from Linux's powercap (RAPL).
///
/// Source  Documentation/power/powercap in the Linux kernel. Since 2020 most systems let only root
///         read the counters.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace strata {

class EnergyCounter {
 public:
  /// `folder`: where the counters are.
  explicit EnergyCounter(const std::string& folder = "/sys/class/powercap");

  /// Joules of all packages since the constructor; none: the machine has no counters, or they
  /// cannot be read. A counter that began again at zero since the last call is counted once: call
  /// it every few minutes.
  std::optional<double> joules();

 private:
  struct Package {
    std::string path;
    double last_microjoules = 0, range_microjoules = 0;
  };
  std::vector<Package> packages_;
  double joules_ = 0;
};

}  // namespace strata

#include "strata/clock/energy.h"

#include <filesystem>
#include <fstream>

namespace strata {
namespace {

namespace fs = std::filesystem;

std::optional<double> number_in(const std::string& path) {
  std::ifstream in(path);
  double number = 0;
  return in >> number ? std::optional(number) : std::nullopt;
}

// "intel-rapl:0" is a package, "intel-rapl:0:0" a part of it.
bool is_package(const std::string& name) {
  const std::size_t colon = name.find(':');
  return name.starts_with("intel-rapl:") && name.find(':', colon + 1) == std::string::npos;
}

}  // namespace

EnergyCounter::EnergyCounter(const std::string& folder) {
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    if (!is_package(entry.path().filename().string())) continue;
    const std::string path = entry.path().string() + "/energy_uj";
    const auto now = number_in(path);
    if (!now) continue;
    packages_.push_back(
        {path, *now, number_in(entry.path().string() + "/max_energy_range_uj").value_or(0)});
  }
}

std::optional<double> EnergyCounter::joules() {
  if (packages_.empty()) return std::nullopt;
  for (Package& package : packages_) {
    const auto now = number_in(package.path);
    if (!now) return std::nullopt;
    double used = *now - package.last_microjoules;
    if (used < 0) used += package.range_microjoules;
    joules_ += used * 1e-6;
    package.last_microjoules = *now;
  }
  return joules_;
}

}  // namespace strata

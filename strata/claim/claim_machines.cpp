#include "strata/claim/claim_machines.h"

#include <map>

#include "strata/base/errors.h"

namespace strata {

const MachineProfile& claim_machine(std::string_view name) {
  static const std::map<std::string, MachineProfile, std::less<>> kMachines = [] {
    std::map<std::string, MachineProfile, std::less<>> machines;
    const auto add = [&](const std::string& file, std::string_view text) {
      machines.emplace(file, parse_machine(std::string(text), "machines/" + file + ".yaml"));
    };
    add("a100-selene", kSeleneMachine);
    add("a100-dgx", kDgxA100Machine);
    add("v100-dgx2-cluster", kDgx2ClusterMachine);
    add("v100-dgx2", kDgx2Machine);
    add("v100-stronghold", kStrongholdMachine);
    return machines;
  }();
  const auto found = kMachines.find(name);
  STRATA_CHECK(found != kMachines.end(), "claim.machines");
  return found->second;
}

}  // namespace strata

#include "strata/comm/communicator.h"

#include <algorithm>
#include <set>

namespace strata {

// A communicator refuses two ranks on one device, and one process without it refuses it for all.
ExchangeWay exchange_way(std::span<const RankPlace> places) {
  std::set<std::uint64_t> devices;
  bool one_process = true, all_have_it = true;
  for (const RankPlace& place : places) {
    one_process = one_process && place.process == places[0].process;
    all_have_it = all_have_it && place.has_backend;
    devices.insert(place.device);
  }
  if (one_process) return ExchangeWay::kPeers;
  return all_have_it && devices.size() == places.size() ? ExchangeWay::kCommunicator
                                                        : ExchangeWay::kThroughHost;
}

}  // namespace strata

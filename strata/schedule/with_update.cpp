#include "strata/schedule/passes.h"
#include "strata/schedule/placement.h"

namespace strata::schedule {
namespace {

enum class Way { kToOwner, kToUser };

void append_ties(std::vector<Program>& programs, const Wiring& wiring, const Placement& placement,
                 Way way) {
  const Op send = way == Way::kToOwner ? Op::kSendTiedGradient : Op::kSendTiedWeight;
  for (std::size_t t = 0; t < wiring.ties.size(); ++t) {
    const int owner = placement.rank[wiring.ties[t].owner];
    for (const int layer : wiring.ties[t].users) {
      const int user = placement.rank[layer];
      if (user == owner) continue;
      const int from = way == Way::kToOwner ? user : owner;
      const int to = way == Way::kToOwner ? owner : user;
      Action action{.op = send, .value = static_cast<int>(t), .consumer = layer, .peer = to};
      programs[from].push_back(action);
      action.op = receive_of(send);
      action.peer = from;
      programs[to].push_back(action);
    }
  }
}

}  // namespace

Schedule with_update(Schedule schedule, const Wiring& wiring, const Partition& partition) {
  const Placement placement(wiring, partition, schedule.rank_of_stage);
  append_ties(schedule.programs, wiring, placement, Way::kToOwner);
  for (Program& program : schedule.programs) {
    program.push_back({.op = Op::kReduceNorm});
    program.push_back({.op = Op::kUpdate});
  }
  append_ties(schedule.programs, wiring, placement, Way::kToUser);
  return schedule;
}

}  // namespace strata::schedule

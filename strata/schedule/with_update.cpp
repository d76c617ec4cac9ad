#include <set>

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

void append_tie_sums(std::vector<Program>& programs, const Wiring& wiring,
                     const Placement& placement) {
  for (std::size_t t = 0; t < wiring.ties.size(); ++t) {
    programs[placement.rank[wiring.ties[t].owner]].push_back(
        {.op = Op::kAddTiedGradients, .value = static_cast<int>(t)});
  }
}

// Starts what had to wait for a tie and awaits whatever was started once for the whole step.
void append_reductions(Program& program, int rank, const Wiring& wiring, const Placement& placement,
                       const Sharing& sharing) {
  std::set<int> owners;  // a layer may own several ties
  for (const Tie& tie : wiring.ties) {
    if (placement.rank[tie.owner] != rank || !sharing.is_reduced(tie.owner)) continue;
    if (!owners.insert(tie.owner).second) continue;
    program.push_back({.op = Op::kReduceGradients, .layers = {tie.owner, tie.owner + 1}});
  }
  Program awaits;
  for (Action action : program) {
    if (action.op != Op::kReduceGradients || action.micro_batch >= 0) continue;
    action.op = Op::kAwaitGradients;
    awaits.push_back(action);
  }
  program.insert(program.end(), awaits.begin(), awaits.end());
}

// Layer by layer: what one layer's update needs may come and go while another's runs.
void append_updates(std::vector<Program>& programs, const Placement& placement,
                    const Sharing& sharing) {
  const int layers = static_cast<int>(placement.rank.size());
  for (int layer = 0; layer < layers; ++layer)
    programs[placement.rank[layer]].push_back({.op = Op::kUpdate, .layers = {layer, layer + 1}});
  for (int layer = 0; sharing.gather && layer < layers; ++layer) {
    if (!sharing.is_reduced(layer) || sharing.is_fetched(layer)) continue;
    programs[placement.rank[layer]].push_back(
        {.op = Op::kGatherWeights, .layers = {layer, layer + 1}});
  }
}

}  // namespace

Schedule with_update(Schedule schedule, const Wiring& wiring, const Partition& partition,
                     const Sharing& sharing) {
  const Placement placement(wiring, partition, schedule.rank_of_stage);
  append_ties(schedule.programs, wiring, placement, Way::kToOwner);
  append_tie_sums(schedule.programs, wiring, placement);
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    Program& program = schedule.programs[rank];
    append_reductions(program, rank, wiring, placement, sharing);
    program.push_back({.op = Op::kReduceNorm});
  }
  append_updates(schedule.programs, placement, sharing);
  append_ties(schedule.programs, wiring, placement, Way::kToUser);
  return schedule;
}

}  // namespace strata::schedule

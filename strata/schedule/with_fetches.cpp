#include <algorithm>
#include <utility>

#include "strata/schedule/passes.h"

namespace strata::schedule {
namespace {

constexpr std::size_t kPrefetch = 1;  // compute actions ahead

// Runs of layers that stay become one action, fetched layers one each.
void append_split(Program& program, Action action, const Sharing& sharing) {
  std::vector<LayerRange> parts;
  for (int layer = action.layers.begin; layer < action.layers.end; ++layer) {
    const bool joins =
        !parts.empty() && !sharing.is_fetched(layer) && !sharing.is_fetched(parts.back().begin);
    if (joins) {
      ++parts.back().end;
    } else {
      parts.push_back({layer, layer + 1});
    }
  }
  if (action.op == Op::kBackward) std::reverse(parts.begin(), parts.end());
  for (const LayerRange& part : parts) {
    action.layers = part;
    program.push_back(action);
  }
}

// The fetched layers that actions [begin, end) use, each once, in the order of their use.
std::vector<int> window(const Program& program, std::size_t begin, std::size_t end,
                        const Sharing& sharing) {
  std::vector<int> layers;
  for (std::size_t i = begin; i < std::min(end, program.size()); ++i) {
    const int layer = program[i].layers.begin;
    if (sharing.is_fetched(layer) && std::find(layers.begin(), layers.end(), layer) == layers.end())
      layers.push_back(layer);
  }
  return layers;
}

Program with_window(const Program& program, const Sharing& sharing) {
  Program full;
  std::vector<int> held;
  for (std::size_t i = 0; i < program.size(); ++i) {
    const std::vector<int> wanted = window(program, i, i + 1 + kPrefetch, sharing);
    for (const int layer : wanted) {
      if (std::find(held.begin(), held.end(), layer) != held.end()) continue;
      full.push_back({.op = Op::kFetchWeights, .layers = {layer, layer + 1}});
      held.push_back(layer);
    }
    full.push_back(program[i]);
    const std::vector<int> next = window(program, i + 1, i + 2 + kPrefetch, sharing);
    std::erase_if(held, [&](int layer) {
      if (std::find(next.begin(), next.end(), layer) != next.end()) return false;
      full.push_back({.op = Op::kReleaseWeights, .layers = {layer, layer + 1}});
      return true;
    });
  }
  return full;
}

}  // namespace

Schedule with_fetches(Schedule schedule, const Sharing& sharing) {
  if (std::find(sharing.fetched.begin(), sharing.fetched.end(), 1) == sharing.fetched.end())
    return schedule;
  for (Program& program : schedule.programs) {
    Program split;
    for (const Action& action : program) append_split(split, action, sharing);
    program = with_window(split, sharing);
  }
  return schedule;
}

}  // namespace strata::schedule

#include "strata/train/rank_states_test.h"

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <utility>

#include "strata/checkpoint/named_state.h"
#include "strata/optim/one_bit_adam.h"

namespace strata {
namespace {

constexpr double kRate = 1e-2;
constexpr const char* kLossScale = "loss_scale";

std::vector<NamedState> states_of(Trainer& trainer) {
  std::vector<NamedState> states = trainer.weights();
  for (NamedState& slot : trainer.slots()) states.push_back(std::move(slot));
  return states;
}

// Each rank has its own errors of the signs that it sends (optim/one_bit_adam.h).
bool is_whole_on_every_rank(const NamedState& state) {
  const bool is_error = state.name.ends_with(kServerError) ||
                        state.name.find(std::string(".") + kWorkerError + ".") != std::string::npos;
  return state.runs.size() == 1 && state.runs[0].numel == state.numel() && state.local.defined() &&
         !is_error;
}

std::map<std::string, at::Tensor> copies_without_loss_scale(Trainer& trainer) {
  std::map<std::string, at::Tensor> copies;
  for (const NamedState& state : states_of(trainer))
    if (state.name != kLossScale && state.local.defined())
      copies.emplace(state.name, state.values().clone());
  return copies;
}

void overflow_next_gradients(Trainer& trainer) {
  constexpr double kTooLarge = 1e30;
  trainer.fill([](const std::vector<NamedState>&, const std::vector<NamedState>& slots) {
    for (const NamedState& slot : slots)
      if (slot.name == kLossScale) slot.local[0].fill_(kTooLarge);
  });
}

}  // namespace

void expect_ranks_keep_equal_states(const MeshCase& c, const ChangeOptions& change,
                                    bool replicas_apart) {
  std::mutex mutex;
  std::map<std::pair<int, std::string>, at::Tensor> first;  // replica, name
  std::set<std::string> weights, states;                    // that were compared
  on_mesh_ranks(
      c,
      [&](Trainer& trainer, Group& group) {
        for (int step = 0; step < c.steps; ++step) trainer.step(mesh_batch(c, step), kRate);
        const int replica = replicas_apart ? c.mesh.place(group.rank())[Axis::kData] : 0;
        const std::lock_guard lock(mutex);
        std::set<std::string> seen;  // with tied layers a weight has two uses
        const auto compare = [&](const NamedState& state, std::set<std::string>& compared) {
          if (!is_whole_on_every_rank(state) || !seen.insert(state.name).second) return;
          const auto [entry, fresh] =
              first.try_emplace({replica, state.name}, state.tensor().clone());
          if (fresh) return;
          compared.insert(state.name);
          EXPECT_TRUE(at::equal(entry->second, state.tensor())) << state.name;
        };
        for (const NamedState& weight : trainer.weights()) compare(weight, weights);
        for (const NamedState& slot : trainer.slots()) compare(slot, states);
      },
      change);
  EXPECT_GT(weights.size(), 8u);
  EXPECT_GT(states.size(), 8u);
}

std::map<std::string, at::Tensor> expect_skipped_step_changes_no_state(
    const MeshCase& c, int steps, const ChangeOptions& change) {
  std::map<std::string, at::Tensor> of_first;
  on_mesh_ranks(
      c,
      [&](Trainer& trainer, Group& group) {
        for (int step = 0; step < steps; ++step) trainer.step(mesh_batch(c, step), kRate);
        overflow_next_gradients(trainer);
        const auto before = copies_without_loss_scale(trainer);
        EXPECT_TRUE(trainer.step(mesh_batch(c, steps), kRate).skipped);
        const auto after = copies_without_loss_scale(trainer);
        EXPECT_GT(before.size(), 8u);
        for (const auto& [name, state] : before)
          EXPECT_TRUE(at::equal(state, after.at(name))) << name;
        if (group.rank() == 0) of_first = before;
      },
      change);
  return of_first;
}

}  // namespace strata

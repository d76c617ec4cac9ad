/// Makes states as the ranks of any mesh hold them, without a trainer.
///
/// Each element's value is a function of its state's name and its global index, so a rank can check
/// what it has read.
#pragma once

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "strata/checkpoint/named_state.h"
#include "strata/layout/mesh.h"
#include "strata/models/model.h"
#include "strata/nn/graph/layout.h"

namespace strata {

struct ExampleMesh {
  Mesh mesh;
  int zero = 0;
};

struct ExampleStates {
  std::vector<NamedState> weights;
  std::vector<NamedState> slots;
};

constexpr float kUnread = -7;

inline float example_value(const std::string& name, std::int64_t element) {
  const std::size_t key = std::hash<std::string>()(name) % 1009;
  return static_cast<float>(key) * 4096 + static_cast<float>(element);
}

class ExampleRank {
 public:
  ExampleRank(const DecoderOptions& model, const ExampleMesh& mesh, int rank)
      : model_(make_model(model)), mesh_(mesh), place_(mesh.mesh.place(rank)) {}

  /// What this rank owns, with its values: sharded over dp for any ZeRO stage, so that every
  /// element has one owner.
  ExampleStates owned() const { return states(true); }
  /// What this rank needs, not yet read; the last stage also has a replica of the tied embedding.
  ExampleStates held() const { return states(false); }

  /// Whether all runs have their values and everything between them is unchanged.
  static bool was_read(const NamedState& state) {
    if (state.runs.empty()) return true;
    at::Tensor expected = at::full({state.local.numel()}, kUnread);
    fill(state.name, state.runs, expected);
    return at::equal(expected, state.local);
  }

 private:
  static void fill(const std::string& name, const std::vector<Run>& runs, at::Tensor& local) {
    if (runs.empty()) return;
    float* values = local.mutable_data_ptr<float>();
    for (const Run& run : runs)
      for (std::int64_t i = 0; i < run.numel; ++i)
        values[run.local + i] = example_value(name, run.global + i);
  }

  // The shard of a flat state of `numel` elements for this rank's dp index.
  std::pair<std::int64_t, std::int64_t> shard(std::int64_t numel) const {
    const std::int64_t size = (numel + mesh_.mesh[Axis::kData] - 1) / mesh_.mesh[Axis::kData];
    return {std::min(numel, size * place_[Axis::kData]),
            std::min(numel, size * (place_[Axis::kData] + 1))};
  }

  NamedState state(const std::string& name, const WeightSpec& spec, bool sharded,
                   bool owned) const {
    const std::vector<Run> runs =
        slice_runs(spec, place_[Axis::kTensor], mesh_.mesh[Axis::kTensor]);
    std::int64_t numel = 1;
    for (const std::int64_t size : slice_shape(spec, mesh_.mesh[Axis::kTensor])) numel *= size;
    const auto [begin, end] =
        sharded ? shard(numel) : std::pair<std::int64_t, std::int64_t>(0, numel);
    NamedState state{.name = name,
                     .shape = spec.shape,
                     .local = at::full({end - begin}, kUnread),
                     .runs = clip_runs(runs, begin, end)};
    for (Run& run : state.runs) run.local -= begin;
    if (begin == end) state.local = at::Tensor();  // as the trainer lists states without elements
    if (!owned) return state;
    if (spec.split.axis < 0 && place_[Axis::kTensor] > 0)
      state = {.name = name, .shape = spec.shape};  // tp rank 0 owns it
    fill(name, state.runs, state.local);
    return state;
  }

  ExampleStates states(bool owned) const {
    ExampleStates states;
    const int layers = model_.num_layers();
    const int begin = layers * place_[Axis::kPipeline] / mesh_.mesh[Axis::kPipeline];
    const int end = layers * (place_[Axis::kPipeline] + 1) / mesh_.mesh[Axis::kPipeline];
    const auto add = [&](int layer, std::size_t i, bool slots) {
      const WeightSpec& spec = model_.layout(layer).specs[i];
      const std::string name = model_.name(layer) + "." + spec.name;
      states.weights.push_back(state(name, spec, owned || mesh_.zero == 3, owned));
      for (const char* slot : {".exp_avg", ".exp_avg_sq"})
        if (slots) states.slots.push_back(state(name + slot, spec, owned || mesh_.zero > 0, owned));
    };
    for (int layer = begin; layer < end; ++layer)
      for (std::size_t i = 0; i < model_.layout(layer).specs.size(); ++i)
        if (!model_.layout(layer).placements[i].borrowed) add(layer, i, true);
    if (!owned && end == layers && begin > 0) add(0, 0, false);  // the tied embedding
    return states;
  }

  Sequential model_;
  ExampleMesh mesh_;
  MeshPlace place_;
};

}  // namespace strata

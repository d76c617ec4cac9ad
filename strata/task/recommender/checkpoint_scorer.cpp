// Embeddings of a checkpoint are read through a worker and local servers, as in an evaluation,
// which round them as embedding.wire states. All of them are in memory: no update evicts one.
#include "strata/task/recommender/checkpoint_scorer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "strata/base/errors.h"
#include "strata/checkpoint/loader.h"
#include "strata/checkpoint/reader.h"
#include "strata/device/device.h"
#include "strata/embed/saved_rows.h"
#include "strata/nn/graph/weight_name.h"
#include "strata/rowserver/local_servers.h"
#include "strata/rowserver/rows/row_table_state.h"
#include "strata/rowserver/wire/grpc_inspection.h"
#include "strata/task/recommender/click_data.h"

namespace strata {
namespace {

constexpr double kServerSeconds = 5;  // to answer

std::vector<std::vector<at::Tensor>> read_net(const Sequential& model, const std::string& network,
                                              const std::string& folder) {
  std::vector<std::vector<at::Tensor>> weights;
  std::vector<NamedState> states;
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    weights.emplace_back();
    for (const WeightSpec& spec : model.layout(layer).specs) {
      const at::Tensor weight = at::empty(spec.shape, host_options(at::kFloat));
      states.push_back({.name = weight_name(model, layer, spec),
                        .shape = spec.shape,
                        .local = weight.view({-1}),
                        .runs = {{.local = 0, .global = 0, .numel = weight.numel()}}});
      weights.back().push_back(weight);
    }
  }
  load_weights(folder, CheckpointModel(network), states);
  return weights;
}

std::int64_t rounded_up(std::int64_t samples) {
  return (samples + kScoredRows - 1) / kScoredRows * kScoredRows;
}

}  // namespace

CheckpointScorer::CheckpointScorer(const RecommenderFields& fields, std::uint64_t seed,
                                   const std::string& folder)
    : model_(make_recommender(fields.model, inputs_of(fields), RecommenderOutput::kLogits)),
      fingerprint_(fingerprint_of(worker_options(fields).tables, seed)),
      network_(network_fields(fields)) {
  const CheckpointReader checkpoint = CheckpointReader::open(folder);
  checkpoint.verify_all();
  version_ = checkpoint.manifest().step;
  preprocessing_ = Preprocessing::load_state(complete(fields.data), saved_preprocessing(folder));
  weights_ = read_net(model_, network_, folder);
  servers_ = fields.embedding.is_local() ? saved_rows(fields, seed, folder) : served_rows(fields);
  worker_ = std::make_unique<EmbeddingWorker>(worker_options(fields), *servers_,
                                              [](std::int64_t) -> SampleBatch { return {}; });
}

std::unique_ptr<RowServers> CheckpointScorer::saved_rows(const RecommenderFields& fields,
                                                         std::uint64_t seed,
                                                         const std::string& folder) const {
  const std::shared_ptr<ShardState> state =
      make_row_table_state(worker_options(fields).tables, {.seed = seed});
  SavedRows(saved_rows_folder(fields, folder), fingerprint_, 0).load(version_, 0, 1, *state);
  std::vector<std::shared_ptr<RowStore>> stores = {{state, &state->rows()}};
  return std::move(
      make_local_servers(std::move(stores), {.wire = fields.embedding.wire, .version = version_})
          .front());
}

std::unique_ptr<RowServers> CheckpointScorer::served_rows(const RecommenderFields& fields) {
  std::vector<std::unique_ptr<RowInspection>> shards;
  for (const std::string& server : fields.embedding.servers)
    shards.push_back(
        remote_inspection(server, access_from_environment(), {.seconds = kServerSeconds}));
  auto servers =
      std::make_unique<InspectedServers>(worker_options(fields).tables, std::move(shards));
  inspected_ = servers.get();
  return servers;
}

bool CheckpointScorer::reads_same_samples_as(const CheckpointScorer& other) const {
  return fingerprint_ == other.fingerprint_ && network_ == other.network_ &&
         preprocessing_->save_state() == other.preprocessing_->save_state();
}

std::vector<float> CheckpointScorer::logits(const SampleBatch& samples) {
  const at::NoGradGuard no_grad;
  const std::int64_t rows = rounded_up(samples.samples), width = worker_->width();
  const auto numbers = static_cast<std::int64_t>(preprocessing_->options().numeric.size());
  const at::Tensor numeric = at::zeros({rows, numbers}, host_options(at::kFloat));
  const at::Tensor pooled = at::zeros({rows, width}, host_options(at::kFloat));
  std::ranges::copy(samples.numeric, numeric.mutable_data_ptr<float>());
  worker_->read(
      version_, samples,
      {pooled.mutable_data_ptr<float>(), static_cast<std::size_t>(samples.samples * width)});
  const std::vector<at::Tensor> batch = {numeric, pooled};
  std::vector<at::Tensor> values(model_.dataflow().values.size());
  for (int layer = 0; layer < model_.num_layers(); ++layer) {
    std::vector<at::Tensor> inputs;
    for (const InputRef& ref : model_.inputs(layer))
      inputs.push_back(ref.value >= 0 ? values[static_cast<std::size_t>(ref.value)]
                                      : batch[static_cast<std::size_t>(ref.batch_input)]);
    const std::vector<at::Tensor> outputs = model_.layer(layer).forward(
        {.layer = layer}, weights_[static_cast<std::size_t>(layer)], inputs);
    for (std::size_t i = 0; i < outputs.size(); ++i)
      values[static_cast<std::size_t>(model_.outputs(layer)[i])] = outputs[i];
  }
  const float* scores = values.back().const_data_ptr<float>();
  return {scores, scores + samples.samples};
}

}  // namespace strata

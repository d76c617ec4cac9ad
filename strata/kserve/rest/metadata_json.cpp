#include "strata/kserve/rest/metadata_json.h"

namespace strata {
namespace {

using Ordered = nlohmann::ordered_json;

Ordered tensors_json(const std::vector<TensorMetadata>& specs) {
  Ordered list = Ordered::array();
  for (const TensorMetadata& spec : specs)
    list.push_back(
        {{"name", spec.name}, {"datatype", name_of(spec.datatype)}, {"shape", spec.shape}});
  return list;
}

Ordered config_tensors(const std::vector<TensorMetadata>& specs, bool inputs) {
  Ordered list = Ordered::array();
  for (const TensorMetadata& spec : specs) {
    list.push_back(
        {{"name", spec.name}, {"data_type", config_type(spec.datatype)}, {"dims", spec.shape}});
    if (inputs) list.back()["optional"] = spec.optional;
  }
  return list;
}

Ordered time_json(const RequestTime& time) {
  return {{"count", time.count}, {"ns", time.nanoseconds}};
}

}  // namespace

Ordered server_json(const std::string& version) {
  return {{"name", "strata"}, {"version", version}, {"extensions", kKServeExtensions}};
}

Ordered model_json(const ModelDescription& model) {
  return {{"name", model.name},
          {"versions", Ordered::array({kModelVersion})},
          {"platform", model.platform},
          {"inputs", tensors_json(model.inputs)},
          {"outputs", tensors_json(model.outputs)}};
}

Ordered config_json(const ModelDescription& model) {
  return {{"name", model.name},
          {"platform", model.platform},
          {"backend", "strata"},
          {"max_batch_size", 0},
          {"input", config_tensors(model.inputs, true)},
          {"output", config_tensors(model.outputs, false)},
          {"model_transaction_policy", {{"decoupled", model.decoupled}}}};
}

Ordered statistics_json(const std::vector<ModelRepository::Model>& models) {
  Ordered list = Ordered::array();
  const Ordered none = time_json({});
  for (const ModelRepository::Model& model : models) {
    const ModelStatistics statistics = model->statistics();
    list.push_back({{"name", model->description().name},
                    {"version", kModelVersion},
                    {"last_inference", statistics.last_request},
                    {"inference_count", statistics.success.count},
                    {"execution_count", statistics.executions},
                    {"inference_stats",
                     {{"success", time_json(statistics.success)},
                      {"fail", time_json(statistics.failed())},
                      {"queue", none},
                      {"compute_input", none},
                      {"compute_infer", none},
                      {"compute_output", none},
                      {"cache_hit", none},
                      {"cache_miss", none}}},
                    {"batch_stats", Ordered::array()}});
  }
  return {{"model_stats", std::move(list)}};
}

Ordered index_json(const std::vector<IndexEntry>& index) {
  Ordered list = Ordered::array();
  for (const IndexEntry& entry : index)
    list.push_back({{"name", entry.name},
                    {"version", kModelVersion},
                    {"state", entry.state},
                    {"reason", entry.reason}});
  return list;
}

}  // namespace strata

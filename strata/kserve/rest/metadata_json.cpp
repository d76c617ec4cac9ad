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

const std::vector<std::string>& kserve_extensions() {
  static const std::vector<std::string> kExtensions = {
      "binary_tensor_data", "generate", "model_configuration", "model_repository", "statistics"};
  return kExtensions;
}

std::string config_type(Datatype datatype) {
  return datatype == Datatype::kBytes ? "TYPE_STRING" : std::string("TYPE_") + name_of(datatype);
}

Ordered server_json(const std::string& version) {
  return {{"name", "strata"}, {"version", version}, {"extensions", kserve_extensions()}};
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

Ordered index_json(const std::vector<ModelRepository::Model>& models, bool only_ready) {
  Ordered list = Ordered::array();
  for (const ModelRepository::Model& model : models) {
    const bool ready = model->ready();
    if (only_ready && !ready) continue;
    list.push_back({{"name", model->description().name},
                    {"version", kModelVersion},
                    {"state", ready ? "READY" : "UNAVAILABLE"},
                    {"reason", ready ? "" : "the model is not ready"}});
  }
  return list;
}

}  // namespace strata

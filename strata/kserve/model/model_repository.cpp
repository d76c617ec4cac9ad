#include "strata/kserve/model/model_repository.h"

#include <algorithm>

#include "strata/base/prometheus_text.h"
#include "strata/base/user_text.h"
#include "strata/openai/api_error.h"

namespace strata {
namespace {

/// Writes families of Triton's metrics, one line for each model.
class TritonMetrics {
 public:
  explicit TritonMetrics(const std::vector<ModelRepository::Model>& models) {
    for (const auto& model : models)
      states_.emplace_back("model=\"" + prometheus_label_value(model->description().name) +
                               "\",version=\"" + kModelVersion + '"',
                           model->statistics());
  }

  using Number = std::function<std::int64_t(const ModelStatistics&)>;
  void number(const char* type, const char* name, const char* help, const Number& number) {
    text_ += prometheus_head(name, type, help);
    for (const auto& [labels, statistics] : states_) line(name, labels, number(statistics));
  }

  void failures(const char* name, const char* help) {
    text_ += prometheus_head(name, "counter", help);
    for (const auto& [labels, statistics] : states_)
      for (const auto& [reason, failures] : statistics.failures)
        line(name, labels + ",reason=\"" + reason + '"', static_cast<std::int64_t>(failures.count));
  }

  std::string text() && { return std::move(text_); }

 private:
  void line(const std::string& name, const std::string& labels, std::int64_t number) {
    text_ += name + '{' + labels + "} " + std::to_string(number) + '\n';
  }

  std::vector<std::pair<std::string, ModelStatistics>> states_;  // by labels
  std::string text_;
};

}  // namespace

const ModelRepository::Model& ModelRepository::find(const std::string& name,
                                                    const std::string& version,
                                                    const std::shared_ptr<ApiKey>& key) const {
  const auto name_of_model = [](const Model& model) -> const std::string& {
    return model->description().name;
  };
  const auto found = std::ranges::find(models_, name, name_of_model);
  if (found == models_.end())
    throw ApiError({.status = 404,
                    .message = "there is no model '" + excerpt(name) + "'",
                    .param = "model",
                    .code = "model_not_found"});
  if (key != nullptr && !key->may_use(name))
    throw ApiError({.status = 403,
                    .message = "the key may not use the model '" + excerpt(name) + "'",
                    .type = "permission_error",
                    .param = "model",
                    .code = "model_not_allowed"});
  if (!version.empty() && version != kModelVersion)
    throw ApiError({.status = 404,
                    .message = "the model '" + excerpt(name) + "' has no version '" +
                               excerpt(version) + "', only '" + kModelVersion + "'",
                    .param = "version",
                    .code = "model_not_found"});
  return *found;
}

std::vector<ModelRepository::Model> ModelRepository::visible(
    const std::shared_ptr<ApiKey>& key) const {
  std::vector<Model> visible;
  for (const Model& model : models_)
    if (key == nullptr || key->may_use(model->description().name)) visible.push_back(model);
  return visible;
}

std::vector<IndexEntry> ModelRepository::index(const std::shared_ptr<ApiKey>& key,
                                               bool only_ready) const {
  std::vector<IndexEntry> index;
  for (const Model& model : visible(key)) {
    const std::string& name = model->description().name;
    if (model->ready())
      index.push_back({.name = name, .state = "READY", .reason = ""});
    else if (!only_ready)
      index.push_back({.name = name, .state = "UNAVAILABLE", .reason = "the model is not ready"});
  }
  return index;
}

bool ModelRepository::ready() const {
  return std::ranges::all_of(models_, [](const Model& model) { return model->ready(); });
}

std::function<void()> ModelRepository::infer(InferenceRequest request,
                                             std::shared_ptr<InferenceSink> sink) const {
  const Model& model = find(request.model, request.version, request.key);
  check_request(model->description(), request);
  return model->infer(std::move(request), std::move(sink));
}

std::string ModelRepository::metrics_text() const {
  using Statistics = ModelStatistics;
  const auto whole = [](std::uint64_t number) { return static_cast<std::int64_t>(number); };
  TritonMetrics out(models_);
  out.number("counter", "nv_inference_request_success", "requests that ended with an answer",
             [=](const Statistics& model) { return whole(model.success.count); });
  out.failures("nv_inference_request_failure", "requests that ended without one, by reason");
  out.number("counter", "nv_inference_count", "requests that ended with an answer",
             [=](const Statistics& model) { return whole(model.success.count); });
  out.number("counter", "nv_inference_exec_count", "forward passes",
             [=](const Statistics& model) { return whole(model.executions); });
  out.number("counter", "nv_inference_request_duration_us",
             "microseconds from requests to their answers' ends",
             [=](const Statistics& model) { return whole(model.success.nanoseconds / 1000); });
  out.number("gauge", "nv_inference_pending_request_count", "requests that wait",
             [](const Statistics& model) { return model.pending; });
  return std::move(out).text();
}

}  // namespace strata

#include "strata/openai/served_models.h"

#include <algorithm>

#include "strata/openai/api_error.h"

namespace strata {

ServedModels::ServedModels(const std::vector<OpenAiModel>& models) {
  for (const OpenAiModel& model : models)
    entries_.push_back({std::make_shared<const OpenAiModel>(model), model.metrics});
}

const ServedModelEntry& ServedModels::named(const std::string& name, const ApiCall& call) const {
  const auto found = std::ranges::find(
      entries_, name, [](const ServedModelEntry& entry) { return entry.model->name; });
  if (found == entries_.end())
    throw ApiError({.status = 404,
                    .message = "there is no model '" + name + "'; GET /v1/models lists them",
                    .param = "model",
                    .code = "model_not_found"});
  if (call.key != nullptr && !call.key->may_use(name))
    throw ApiError({.status = 403,
                    .message = "the key may not use the model '" + name + "'",
                    .type = "permission_error",
                    .param = "model",
                    .code = "model_not_allowed"});
  return *found;
}

const ServedModelEntry& ServedModels::of(const RequestFields& fields, const ApiCall& call) const {
  const std::string name = fields.text("model", "");
  return name.empty() ? only(call) : named(name, call);
}

const ServedModelEntry& ServedModels::only(const ApiCall& call) const {
  if (entries_.size() > 1)
    refuse_field("model", "the name of a model, because the server has several", "nothing");
  return named(entries_.front().model->name, call);
}

std::vector<ServedModelEntry> ServedModels::visible(const ApiCall& call) const {
  std::vector<ServedModelEntry> visible;
  for (const ServedModelEntry& entry : entries_)
    if (call.key == nullptr || call.key->may_use(entry.model->name)) visible.push_back(entry);
  return visible;
}

bool ServedModels::ready() const {
  return std::ranges::all_of(
      entries_, [](const ServedModelEntry& entry) { return entry.model->service->status().ready; });
}

std::string ServedModels::metrics_text() const {
  std::vector<ModelState> states;
  for (const ServedModelEntry& entry : entries_)
    states.push_back({entry.model->name, entry.model->service->status(), entry.metrics->counts()});
  return prometheus_text(states);
}

}  // namespace strata

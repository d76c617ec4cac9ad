/// Finds the model of a request among those of a server, and the metrics of each.
///
/// Threads  any
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "strata/openai/api_call.h"
#include "strata/openai/metrics.h"
#include "strata/openai/model.h"
#include "strata/openai/request_fields.h"

namespace strata {

struct ServedModelEntry {
  std::shared_ptr<const OpenAiModel> model;
  std::shared_ptr<ModelMetrics> metrics;
};

class ServedModels {
 public:
  explicit ServedModels(const std::vector<OpenAiModel>& models);

  /// ApiError 404: no model has the name. 403: the key may not use it.
  const ServedModelEntry& named(const std::string& name, const ApiCall& call) const;

  /// The only model. ApiError 400: the server has several.
  const ServedModelEntry& only(const ApiCall& call) const;

  /// The model of the field "model"; a server of one model needs no field.
  const ServedModelEntry& of(const RequestFields& fields, const ApiCall& call) const;

  /// Models that the key may use, in the order of the server.
  std::vector<ServedModelEntry> visible(const ApiCall& call) const;

  bool ready() const;  ///< whether all services are
  std::string metrics_text() const;

 private:
  std::vector<ServedModelEntry> entries_;
};

}  // namespace strata

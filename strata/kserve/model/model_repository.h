/// Finds the model of a request among those of a server, and starts its inference.
///
/// Threads  any.
/// Errors   ApiError 403: the key may not use the model. 404: no model or version has the name.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "strata/kserve/model/inference_model.h"

namespace strata {

inline constexpr const char* kModelVersion = "1";  ///< the only version of each model

/// Extensions of the protocol that the server has, by Triton's names.
inline constexpr std::array kKServeExtensions = {
    "binary_tensor_data", "generate", "model_configuration", "model_repository", "statistics"};

/// A model in the index of a repository.
struct IndexEntry {
  std::string name;
  std::string state;   ///< "READY" or "UNAVAILABLE"
  std::string reason;  ///< why it is not ready; else empty
};

class ModelRepository {
 public:
  using Model = std::shared_ptr<InferenceModel>;
  explicit ModelRepository(std::vector<Model> models) : models_(std::move(models)) {}

  /// `version`: "1", or empty. `key`: null if the server needs none.
  const Model& find(const std::string& name, const std::string& version,
                    const std::shared_ptr<ApiKey>& key) const;

  /// Models that the key may use, in the order of the server.
  std::vector<Model> visible(const std::shared_ptr<ApiKey>& key) const;

  /// `only_ready`: leaves out models that are not ready.
  std::vector<IndexEntry> index(const std::shared_ptr<ApiKey>& key, bool only_ready) const;

  bool ready() const;  ///< whether all models are

  /// Checks the request, and starts it as InferenceModel::infer().
  std::function<void()> infer(InferenceRequest request, std::shared_ptr<InferenceSink> sink) const;

  /// The statistics of all models for Prometheus, under Triton's names.
  std::string metrics_text() const;

 private:
  std::vector<Model> models_;
};

}  // namespace strata

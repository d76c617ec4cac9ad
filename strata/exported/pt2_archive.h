/// Reads the records of a file that torch.export.save() wrote: JSON, and the bytes of tensors.
///
/// libtorch's own reader opens the archive. Nothing in it is executed: tensors that are stored as
/// pickles are refused.
///
/// Threads  any.
/// Errors   UserError `[exported.read]`: a tensor that does not fit its bytes, a type that layers
///          do not have, a pickle. std::exception of the reader and the parser: a damaged file.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace caffe2::serialize {
class PyTorchStreamReader;
}

namespace strata {

/// The type of this number in torch/_export/serde/schema.py.
at::ScalarType scalar_type_of(std::int64_t number);

/// Where the archive has the bytes of a tensor.
struct TensorPlace {
  std::string record;
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0;
  at::ScalarType dtype = at::kFloat;
};

class Pt2Archive {
 public:
  explicit Pt2Archive(const std::string& path);
  ~Pt2Archive();

  nlohmann::json parse(const std::string& record);  ///< within the limits of JsonDocument

  /// Of a parameter, buffer or constant, by its name in state_dict(); null: there is none.
  const TensorPlace* find(const std::string& target) const;
  at::Tensor tensor(const TensorPlace& place);

 private:
  void read_places(const std::string& folder, const std::string& config);

  std::mutex mutex_;  // of the reader
  std::unique_ptr<caffe2::serialize::PyTorchStreamReader> reader_;
  std::map<std::string, TensorPlace> places_;  // by target
};

}  // namespace strata

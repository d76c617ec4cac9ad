#include "strata/exported/pt2_archive.h"

#include <ATen/ops/empty.h>
#include <caffe2/serialize/inline_container.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "strata/base/error_source.h"
#include "strata/base/json_document.h"
#include "strata/device/account.h"
#include "strata/device/device.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr ErrorSource kArchiveErrors{"exported.read"};

std::vector<std::int64_t> constants(const json& numbers) {
  std::vector<std::int64_t> values;
  for (const json& number : numbers) values.push_back(number.at("as_int"));
  return values;
}

// Whether all elements lie within the storage, which has no fewer.
bool fits(const TensorPlace& place, std::int64_t elements) {
  if (place.offset < 0 || place.offset > elements || place.sizes.size() != place.strides.size())
    return false;
  std::int64_t last = place.offset, numel = 1;
  for (std::size_t i = 0; i < place.sizes.size(); ++i) {
    const std::int64_t size = place.sizes[i], stride = place.strides[i];
    if (size < 0 || stride < 0 || size > elements || stride > elements) return false;
    if (size == 0) return true;
    if (numel > elements / size || (size > 1 && stride > (elements - last) / (size - 1)))
      return false;
    numel *= size;
    last += (size - 1) * stride;
  }
  return last < elements;
}

}  // namespace

at::ScalarType scalar_type_of(std::int64_t number) {
  static const std::map<std::int64_t, at::ScalarType> kTypes = {
      {1, at::kByte}, {2, at::kChar},  {3, at::kShort},  {4, at::kInt},   {5, at::kLong},
      {6, at::kHalf}, {7, at::kFloat}, {8, at::kDouble}, {12, at::kBool}, {13, at::kBFloat16}};
  const auto found = kTypes.find(number);
  if (found == kTypes.end())
    throw kArchiveErrors.user("dtype " + std::to_string(number),
                              "layers have no values of this type",
                              "real numbers, integers or booleans", "another type",
                              "leave complex and quantised tensors out of the model");
  return found->second;
}

Pt2Archive::Pt2Archive(const std::string& path)
    : reader_(std::make_unique<caffe2::serialize::PyTorchStreamReader>(path)) {
  read_places("data/weights/", "model_weights_config.json");
  read_places("data/constants/", "model_constants_config.json");
}

Pt2Archive::~Pt2Archive() = default;

json Pt2Archive::parse(const std::string& record) {
  const std::scoped_lock lock(mutex_);
  if (const std::size_t size = reader_->getRecordSize(record); size > kMaxJsonBytes)
    throw kArchiveErrors.user(record, "too large", "at most 64 MiB",
                              std::to_string(size) + " bytes");
  const auto [bytes, size] = reader_->getRecord(record);
  const std::string_view text(static_cast<const char*>(bytes.get()), size);
  return JsonDocument::parse(text, record, {.operation = kArchiveErrors.operation}).root().value();
}

void Pt2Archive::read_places(const std::string& folder, const std::string& config) {
  if (!reader_->hasRecord(folder + config)) return;
  const json tensors = parse(folder + config).at("config");
  for (const auto& [target, entry] : tensors.items()) {
    if (entry.value("use_pickle", false))
      throw kArchiveErrors.user(target,
                                "the archive has this tensor as a pickle, which is a program",
                                "plain bytes", "a pickle", "export the model with plain tensors");
    const json& meta = entry.at("tensor_meta");
    places_[target] = {.record = folder + entry.at("path_name").get<std::string>(),
                       .sizes = constants(meta.at("sizes")),
                       .strides = constants(meta.at("strides")),
                       .offset = meta.at("storage_offset").at("as_int"),
                       .dtype = scalar_type_of(meta.at("dtype"))};
  }
}

const TensorPlace* Pt2Archive::find(const std::string& target) const {
  const auto found = places_.find(target);
  return found == places_.end() ? nullptr : &found->second;
}

at::Tensor Pt2Archive::tensor(const TensorPlace& place) {
  const UnchargedScope reading;
  const std::scoped_lock lock(mutex_);
  const std::size_t bytes = reader_->getRecordSize(place.record);
  const auto elements = static_cast<std::int64_t>(bytes / c10::elementSize(place.dtype));
  if (!fits(place, elements))
    throw kArchiveErrors.user(place.record, "the tensor does not fit its bytes",
                              "a shape within " + std::to_string(elements) + " elements",
                              "a larger one", "export the model again");
  const at::Tensor storage = at::empty({elements}, host_options(place.dtype));
  reader_->getRecord(place.record, storage.data_ptr(), storage.nbytes());
  return storage.as_strided(place.sizes, place.strides, place.offset)
      .clone(at::MemoryFormat::Contiguous);
}

}  // namespace strata

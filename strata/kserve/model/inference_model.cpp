#include "strata/kserve/model/inference_model.h"

#include <algorithm>
#include <set>

#include "strata/base/user_text.h"
#include "strata/openai/api_error.h"

namespace strata {
namespace {

const TensorMetadata& spec_of(const std::vector<TensorMetadata>& specs, const std::string& name,
                              const char* kind) {
  std::string known;
  for (const TensorMetadata& spec : specs) {
    if (spec.name == name) return spec;
    known += (known.empty() ? "" : ", ") + spec.name;
  }
  refuse_tensor(name, "is no " + std::string(kind) + " of the model; it has " + known);
}

bool fits(const TensorShape& expected, const TensorShape& shape) {
  return std::ranges::equal(expected, shape,
                            [](std::int64_t a, std::int64_t b) { return a == -1 || a == b; });
}

}  // namespace

RequestTime ModelStatistics::failed() const {
  RequestTime sum;
  for (const auto& [reason, failed] : failures) {
    sum.count += failed.count;
    sum.nanoseconds += failed.nanoseconds;
  }
  return sum;
}

InferenceHead head_of(const InferenceRequest& request) {
  return {.model = request.model, .id = request.id, .streamed = request.may_stream};
}

void check_request(const ModelDescription& description, const InferenceRequest& request) {
  std::set<std::string> inputs, outputs;
  for (const Tensor& tensor : request.inputs) {
    const TensorMetadata& spec = spec_of(description.inputs, tensor.name, "input");
    if (!inputs.insert(tensor.name).second) refuse_tensor(tensor.name, "occurs twice");
    if (tensor.datatype != spec.datatype)
      refuse_tensor(tensor.name, "must be " + std::string(name_of(spec.datatype)) + ", got " +
                                     name_of(tensor.datatype));
    if (!fits(spec.shape, tensor.shape))
      refuse_tensor(tensor.name, "must have the shape " + shape_text(spec.shape) + ", got " +
                                     shape_text(tensor.shape));
  }
  for (const TensorMetadata& spec : description.inputs)
    if (!spec.optional && !inputs.contains(spec.name)) refuse_tensor(spec.name, "is missing");
  for (const std::string& output : request.outputs) {
    spec_of(description.outputs, output, "output");
    if (!outputs.insert(output).second) refuse_tensor(output, "is requested twice");
  }
}

}  // namespace strata

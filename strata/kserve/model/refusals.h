/// Refuses what KServe's protocol and Triton's extensions define and the server does not do, in the
/// same words over HTTP and gRPC.
///
/// Errors  ApiError 400.
#pragma once

#include "strata/kserve/model/tensor.h"
#include "strata/openai/api_error.h"

namespace strata {

/// Why the server answers a route or a call with "not implemented".
inline constexpr const char *kNoLoading = "the server serves the models that it was started with",
                            *kNoSharedMemory = "the server reads no shared memory",
                            *kNoTraces = "the server has no traces",
                            *kNoLog = "the server has no settings of a log";

/// `parameters`: of a request or of a tensor, a map by name.
template <typename Parameters>
void refuse_parameters(const Parameters& parameters) {
  for (const char* name : {"shared_memory_region", "shared_memory_byte_size"})
    if (parameters.contains(name)) refuse_unsupported(name, "send tensors in the request");
  if (parameters.contains("classification"))
    refuse_unsupported("classification", "outputs are the model's own");
}

/// Elements of FP16 and BF16 outside of raw bytes.
[[noreturn]] inline void refuse_half_precision(const Tensor& tensor) {
  refuse_tensor(tensor.name, "must be sent as bytes, because it is 16 bits wide");
}

}  // namespace strata

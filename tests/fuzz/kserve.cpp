// Sends inputs to the routes of KServe's protocol. A body may be a JSON header, a byte 0 and the
// bytes of tensors.
#include "requests.h"
#include "strata/kserve/kserve_server_test.h"

namespace {

constexpr strata::fuzz::Target kTargets[] = {
    {"POST", "/v2/models/m/infer"},
    {"POST", "/v2/models/m/generate"},
    {"POST", "/v2/models/m/generate_stream"},
    {"POST", "/v2/repository/index"},
};

strata::HttpFields binary_header(std::string& body) {
  const std::size_t end = body.find('\0');
  if (end == std::string::npos) return {};
  body.erase(end, 1);
  return {{"Inference-Header-Content-Length", std::to_string(end)}};
}

}  // namespace

void fuzz_input(std::string_view input) {
  strata::fuzz::send<strata::KServeServer>(kTargets, input, binary_header);
}

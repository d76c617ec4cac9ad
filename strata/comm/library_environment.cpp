#include "strata/comm/library_environment.h"

#include <string_view>

#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr std::string_view kOrder =
    "mesh.reduction=native adds in another order than without it: all processes, and runs that are "
    "to "
    "agree, need the same; ordered is not concerned";
constexpr std::string_view kNetwork =
    "chooses the network between machines, and with it the order of mesh.reduction=native; ordered "
    "is "
    "not concerned";
constexpr std::string_view kSlow = "a faster way between GPUs is left out";

constexpr std::string_view kBlocking =
    "NCCL_COMM_BLOCKING";  // overrides a communicator's configuration

struct Warning {
  std::string_view name;
  bool zero_counts;  // whether 0 matters: it is not the default
  std::string_view what;
};

constexpr Warning kWarnings[] = {
    {"NCCL_ALGO", true, kOrder},
    {"NCCL_PROTO", true, kOrder},
    {"NCCL_NVLS_ENABLE", true, kOrder},
    {"NCCL_COLLNET_ENABLE", false, kOrder},
    {"NCCL_MIN_NCHANNELS", false, kOrder},
    {"NCCL_MAX_NCHANNELS", false, kOrder},
    {"NCCL_MIN_CTAS", false, kOrder},
    {"NCCL_MAX_CTAS", false, kOrder},
    {"NCCL_NTHREADS", false, kOrder},
    {"NCCL_BUFFSIZE", false, kOrder},
    {"NCCL_CROSS_NIC", true, kOrder},
    {"NCCL_TOPO_FILE", false, kOrder},
    {"NCCL_GRAPH_FILE", false, kOrder},
    {"NCCL_TUNER_PLUGIN", false, kOrder},
    {"NCCL_CONF_FILE", false, "a file sets variables of NCCL that are not seen here"},
    {"NCCL_SOCKET_IFNAME", false, kNetwork},
    {"NCCL_IB_HCA", false, kNetwork},
    {"NCCL_NET", false, kNetwork},
    {"NCCL_P2P_DISABLE", false, kSlow},
    {"NCCL_SHM_DISABLE", false, kSlow},
    {"NCCL_IB_DISABLE", false, kSlow},
    {kBlocking, false,
     "refused where NCCL is used: its calls would wait, a run that fails with them"},
};

const char* value_of(const Warning& known, const Environment& variable) {
  const char* value = variable(std::string(known.name).c_str());
  const bool counts =
      value && *value != '\0' && (known.zero_counts || std::string_view(value) != "0");
  return counts ? value : nullptr;
}

}  // namespace

std::vector<std::string> library_warnings(const Environment& variable) {
  std::vector<std::string> warnings;
  for (const Warning& known : kWarnings) {
    const char* value = value_of(known, variable);
    if (value)
      warnings.push_back(std::string(known.name) + "=" + value + ": " + std::string(known.what));
  }
  return warnings;
}

void require_calls_that_return(const Environment& variable) {
  const char* value = value_of({.name = kBlocking, .zero_counts = false, .what = ""}, variable);
  if (!value) return;
  throw UserError({.operation = "comm.nccl",
                   .where = std::string(kBlocking),
                   .what = "NCCL's calls would wait for other ranks, and a run that fails for them",
                   .expected = "no such variable, or 0",
                   .got = value,
                   .fix = "unset " + std::string(kBlocking)});
}

std::string library_promise() {
  return "mesh.reduction=ordered: rank order, whatever NCCL does; native: the same bits on the "
         "same "
         "machines, NCCL and environment, which NCCL_ALGO=Ring NCCL_PROTO=Simple "
         "NCCL_NVLS_ENABLE=0 "
         "make the least of";
}

}  // namespace strata

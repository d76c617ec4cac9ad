#include "strata/claim/claims.h"

#include "strata/base/error_source.h"
#include "strata/base/user_text.h"

namespace strata {
namespace {

constexpr ErrorSource kClaimErrors{"claim.arguments", "run strata claim without a name for a list"};

}  // namespace

const std::vector<ClaimEntry>& claim_entries() {
  static const std::vector<ClaimEntry> kEntries = {
      {"gpipe-memory", "GPipe's table 1: 1.8 G and 83.9 G parameters, with its erratum",
       gpipe_memory_claim},
      {"gpipe-throughput", "GPipe's tables 2 and 3: 6.3 times the speed of 2 cores on 8",
       gpipe_throughput_claim},
      {"torchgpipe", "torchgpipe's speeds and model memory", torchgpipe_claim},
      {"zero", "ZeRO's bytes: 120 GB become 1.9 GB", zero_claim},
      {"zero-plus-plus", "ZeRO++'s traffic: 3 M become 0.75 M", zero_plus_plus_claim},
      {"deepspeed-3d", "a trillion parameters on 800 V100", deepspeed_3d_claim},
      {"sc21", "1,008 G parameters on 3,072 A100, and nine smaller models", sc21_claim},
      {"activation-memory", "bytes of activations, and selective recompute",
       activation_memory_claim},
      {"mt-nlg", "530 G parameters on 2,240 to 3,360 A100", mt_nlg_claim},
      {"zero-bubble", "idle time of six schedules, 36 cells", zero_bubble_claim},
      {"offload", "13 G and 40 G parameters on one V100, a trillion on a DGX-2", offload_claim},
      {"stronghold", "5.1 G parameters on one V100 with a host of 90 GB", stronghold_claim},
      {"persia", "100 T parameters on 138 virtual machines", persia_claim},
      {"mlperf", "lines of MLPerf v1.1, and what recorded steps gain", mlperf_claim},
  };
  return kEntries;
}

std::vector<Claim> make_claims(const std::string& name) {
  std::vector<Claim> claims;
  std::vector<std::string> names{"all"};
  for (const ClaimEntry& entry : claim_entries()) {
    names.emplace_back(entry.name);
    if (name == "all" || name == entry.name) claims.push_back(entry.make());
  }
  if (!claims.empty()) return claims;
  std::string expected;
  for (const std::string& each : names) expected += (expected.empty() ? "" : ", ") + each;
  const std::string nearest = nearest_name(name, names);
  throw kClaimErrors.user(excerpt(name), "no claim has this name", expected, quote(name),
                          nearest.empty() ? "" : "did you mean '" + nearest + "'?");
}

}  // namespace strata

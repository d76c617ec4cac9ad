/// Lists the claims. A new claim is a source with a function below and a row in claims.cpp.
///
/// Cost    all claims together take some seconds; each is computed when it is asked for.
/// Errors  UserError `[claim.arguments]` for a name that no claim has, with the nearest one.
#pragma once

#include <string>
#include <vector>

#include "strata/claim/claim.h"

namespace strata {

struct ClaimEntry {
  const char* name;
  const char* headline;  ///< one clause, for the list
  Claim (*make)();
};
const std::vector<ClaimEntry>& claim_entries();

/// The claim of this name, or all for "all".
std::vector<Claim> make_claims(const std::string& name);

Claim gpipe_memory_claim();
Claim gpipe_throughput_claim();
Claim torchgpipe_claim();
Claim zero_claim();
Claim zero_plus_plus_claim();
Claim deepspeed_3d_claim();
Claim sc21_claim();
Claim activation_memory_claim();
Claim mt_nlg_claim();
Claim zero_bubble_claim();
Claim offload_claim();
Claim stronghold_claim();
Claim persia_claim();
Claim mlperf_claim();

}  // namespace strata

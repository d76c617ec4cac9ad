/// Writes claims as text for a terminal, as JSON and as one HTML page that needs no network.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "strata/claim/claim.h"

namespace strata {

std::string claim_list();  ///< names and headlines
std::string text_of(const Claim& claim);
/// "13 claims: 166 rows reproduced, 42 consistent, 20 explained, 28 not explained, 0 missed"
std::string summary_of(const std::vector<Claim>& claims);
void to_json(nlohmann::json& json, const Claim& claim);
std::string claims_json(const std::vector<Claim>& claims);
std::string claims_page(const std::vector<Claim>& claims);

/// "+2.1 %"; the plain difference if the published number is 0.
std::string difference_text(const ClaimRow& row);

}  // namespace strata

/// Prints the bytes of every rank at its peak, by kind: what `plan` shows and what a refusal says.
///
///     MiB on rank  weights  gradients  values   peak  budget
///               0     28.0       28.0     7.5   63.5    50 %
///               1     28.0       28.0     1.5   57.5    45 %
#pragma once

#include <cstdint>
#include <string>

#include "strata/plan/ledger.h"

namespace strata {

/// One unit for all, that of the fullest rank. Kinds that no rank has are left out; device_bytes 0:
/// no limit, so no share of a budget.
std::string byte_table(const Ledger& ledger, std::int64_t device_bytes);

}  // namespace strata

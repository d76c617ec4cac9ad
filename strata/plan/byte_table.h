/// Prints the bytes of every rank at its peak, by kind: what `plan` shows and what a refusal says.
///
///     rank    weights  gradients     values     peak  of 2.00 GiB
///        0   1.00 MiB   1.00 MiB  512.00 KiB  2.50 MiB          0 %
#pragma once

#include <cstdint>
#include <string>

#include "strata/plan/ledger.h"

namespace strata {

/// Kinds that no rank has are left out; device_bytes 0: no limit, so no share of it.
std::string byte_table(const Ledger& ledger, std::int64_t device_bytes);

}  // namespace strata

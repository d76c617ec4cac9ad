/// Proves by a keyed hash that two processes know the same secret, without sending it.
///
/// Source  HMAC-SHA256 (RFC 2104), from OpenSSL's libcrypto.
/// Errors  UserError for a secret that is short, given twice, or in a file that others may read.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "strata/transport/rendezvous.h"

namespace strata {

using Digest = std::array<unsigned char, 32>;
using Nonce = std::array<unsigned char, 32>;

/// The run's secret: STRATA_SECRET, or what stands in the file that STRATA_SECRET_FILE names, which
/// only its owner may read; empty: none is set.
std::string secret_from(const Variables& variables);

/// A new one: 64 hexadecimal digits.
std::string make_secret();

Nonce make_nonce();
Digest keyed_hash(std::string_view key, std::string_view text);
bool equal_in_constant_time(const Digest& a, const Digest& b);

}  // namespace strata

/// Proves with a keyed hash that two processes know the same secret, without sending it.
///
/// Source  HMAC-SHA256 (RFC 2104), from OpenSSL's libcrypto.
/// Errors  UserError for a secret that is short, set twice, in a file that others may read, or in a
///         file that cannot be made.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "strata/transport/rendezvous.h"

namespace strata {

using Digest = std::array<unsigned char, 32>;
using Nonce = std::array<unsigned char, 32>;

/// The run's secret: STRATA_SECRET, or the content of the file that STRATA_SECRET_FILE names, which
/// only its owner may read; empty: none is set.
std::string secret_from(const Variables& variables);

/// The secret of this user, for processes of one machine without a configured secret: the content
/// of $XDG_CONFIG_HOME/strata/secret, or ~/.config/strata/secret, mode 600; created at the first
/// call.
std::string own_secret(const Variables& variables);

/// Set where STRATA_SECRET is one that `strata launch` has made for the processes of its run alone.
inline constexpr const char* kLaunchSecretVariable = "STRATA_LAUNCH_SECRET";

/// A new secret: 64 hexadecimal digits.
std::string make_secret();

Nonce make_nonce();
Digest keyed_hash(std::string_view key, std::string_view text);
bool equal_in_constant_time(const Digest& a, const Digest& b);

std::string hex_text(const Digest& digest);
std::optional<Digest> parse_hex(std::string_view text);  ///< none: not 64 hexadecimal digits

/// What both sides of a handshake must know.
struct HandshakeKey {
  std::string secret;
  /// purpose of the listener: a proof for one purpose is invalid for another
  std::string purpose;
};

/// Proves that a process with one of two roles, "listen" and "connect", knows the key. The role
/// prevents a proof from being reflected to its sender.
Digest proof_of(const HandshakeKey& key, std::string_view role, std::uint32_t process,
                const Nonce& of_listener, const Nonce& of_process);

}  // namespace strata

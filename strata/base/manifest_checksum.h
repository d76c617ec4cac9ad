/// Seals a manifest: adds a last field to JSON text with a checksum of every other byte.
///
/// Errors  UserError that names the file: damaged, cut off.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "strata/base/json_document.h"
#include "strata/base/random_access_file.h"

namespace strata {

/// Returns `json`, an object indented by 2, with the field manifest_checksum and a final line
/// break.
std::string with_manifest_checksum(std::string json);

/// Throws UserError if with_manifest_checksum() did not write this text.
void require_manifest_checksum(std::string_view text, const std::string& path, const FileUse& use);

/// Reads 16 hexadecimal digits, as checksum_text() writes them.
std::uint64_t read_checksum(const JsonPart& digits);

}  // namespace strata

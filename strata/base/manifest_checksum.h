/// Seals a manifest: JSON text whose last field is a checksum of all the rest, so that any byte of it
/// counts.
///
/// Errors  UserError that names the file: damaged, cut off.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "strata/base/json_document.h"
#include "strata/base/random_access_file.h"

namespace strata {

/// `json`: an object, indented by 2. The same with the field manifest_checksum and a line's end.
std::string with_manifest_checksum(std::string json);

/// Refuses a text that isn't as with_manifest_checksum() made it.
void require_manifest_checksum(std::string_view text, const std::string& path, const FileUse& use);

/// Sixteen hexadecimal digits, as checksum_text() writes them.
std::uint64_t read_checksum(const JsonPart& digits);

}  // namespace strata

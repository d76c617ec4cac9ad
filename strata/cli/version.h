/// Says which program this is. The build writes the source (cmake/version.cmake).
#pragma once

namespace strata {

/// "0.1.0, commit 402b138e55ab"; where the source was no checkout of git, the number alone.
extern const char* const kVersion;

}  // namespace strata

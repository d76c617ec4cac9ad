/// Names the version of this program. The build writes the source (cmake/version.cmake).
#pragma once

namespace strata {

/// "0.1.0, commit 402b138e55ab"; only the number if the source was no git checkout.
extern const char* const kVersion;

}  // namespace strata

/// Returns the text of a call's UserError, for tests.
#pragma once

#include <functional>
#include <string>

#include "strata/base/errors.h"

namespace strata {

/// The text of the UserError that `call` throws; "accepted" if it throws none.
inline std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace strata

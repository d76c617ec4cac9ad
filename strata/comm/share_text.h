/// Sends a text of rank 0 to every rank of a group.
///
/// Threads  collective.
#pragma once

#include <string>

#include "strata/comm/group.h"

namespace strata {

/// `text`: of rank 0; other ranks' are ignored.
std::string share_text(Group& group, const std::string& text);

}  // namespace strata

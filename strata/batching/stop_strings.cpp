#include "strata/batching/stop_strings.h"

#include <algorithm>
#include <utility>

#include "strata/base/error_source.h"

namespace strata {

StopStrings::StopStrings(const std::vector<std::string>& stops) {
  constexpr ErrorSource kErrors{"batching.stop", "remove the empty string"};
  for (const std::string& stop : stops) {
    if (stop.empty()) throw kErrors.user("stop", "a stop string is empty", "text", "\"\"");
    Pattern pattern{stop, std::vector<std::size_t>(stop.size() + 1)};
    for (std::size_t i = 1; i < stop.size(); ++i)
      pattern.shorter[i + 1] = pattern.next(pattern.shorter[i], stop[i]);
    patterns_.push_back(std::move(pattern));
  }
}

std::size_t StopStrings::Pattern::next(std::size_t bytes, char byte) const {
  while (bytes == text.size() || text[bytes] != byte) {
    if (bytes == 0) return 0;
    bytes = shorter[bytes];
  }
  return bytes + 1;
}

std::string StopStrings::push(std::string_view piece) {
  if (met_) return {};
  for (std::size_t i = 0; i < piece.size() && !met_; ++i) {
    held_ += piece[i];
    for (std::size_t j = 0; j < patterns_.size(); ++j) {
      Pattern& pattern = patterns_[j];
      pattern.matched = pattern.next(pattern.matched, piece[i]);
      if (pattern.matched < pattern.text.size()) continue;
      if (!met_ || pattern.text.size() > patterns_[*met_].text.size()) met_ = j;
    }
  }
  std::size_t kept = 0;
  if (met_) {
    kept = patterns_[*met_].text.size();
  } else {
    for (const Pattern& pattern : patterns_) kept = std::max(kept, pattern.matched);
  }
  std::string shown = held_.substr(0, held_.size() - kept);
  held_ = met_ ? "" : held_.substr(held_.size() - kept);
  return shown;
}

std::string StopStrings::finish() { return std::exchange(held_, {}); }

}  // namespace strata

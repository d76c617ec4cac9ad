/// Keeps the keys and values of tokens that a rank's layers have decoded, in pages.
///
/// Every layer has one tensor of keys and one of values, whose first dimension counts the pages;
/// page i is the same in all of them. The caller decides which pages a sequence has
/// (batching/pass.h).
///
/// Threads  one rank's thread.
/// Cost     all bytes at construction, of the rank's account.
/// Errors   InternalError: a page that does not exist, too few pages for the tokens of a sequence.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "strata/batching/pass.h"
#include "strata/device/device.h"
#include "strata/nn/graph/sequential.h"

namespace strata {

/// The pages of each rank.
struct PageRoom {
  std::int64_t page_tokens = 1;  ///< tokens of a page
  std::int64_t pages = 1;
};

/// Bytes of one page in all of these layers of a tensor-parallel rank.
std::int64_t page_bytes(const Sequential& model, const std::vector<int>& layers,
                        std::int64_t page_tokens);

class KeyValueCache {
 public:
  KeyValueCache(const Sequential& model, const std::vector<int>& layers, const PageRoom& room,
                Device device);

  /// Describes the tokens of a pass, packed in its order, to each layer, whose next forward must
  /// write their keys and values. The result refers to `pass`.
  const std::map<int, LayerCache>& begin(const Pass& pass);

  const PageRoom& room() const { return room_; }

 private:
  std::map<int, LayerCache> layers_;
  PageRoom room_;
  std::vector<SequenceTokens> pass_;
};

}  // namespace strata

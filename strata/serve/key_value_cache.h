/// Keeps the keys and values of tokens that a rank's layers have decoded, in pages on the device
/// and off it.
///
/// Every layer has one tensor of keys and one of values, whose first dimension counts the pages;
/// page i is the same in all of them. The caller decides which pages a sequence has
/// (batching/pass.h).
///
/// Threads  one rank's thread.
/// Cost     all bytes of the device at construction, of the rank's account; of pages off it as
///          LowerPages.
/// Errors   InternalError: a page that does not exist, too few pages for the tokens of a sequence.
///          What LowerPages throws.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "strata/batching/pass.h"
#include "strata/device/device.h"
#include "strata/nn/graph/sequential.h"
#include "strata/serve/lower_pages.h"

namespace strata {

/// Bytes of one page in all of these layers of a tensor-parallel rank.
std::int64_t page_bytes(const Sequential& model, const std::vector<int>& layers,
                        std::int64_t page_tokens);

class KeyValueCache {
 public:
  KeyValueCache(const Sequential& model, const std::vector<int>& layers, const PageRoom& room,
                Device device, const LowerPagesOptions& lower = {});

  /// Moves pages, in this order, before a pass.
  void move(const PageMoves& moves);

  /// Describes the tokens of a pass, packed in its order, to each layer, whose next forward must
  /// write their keys and values. The result refers to `pass`.
  const std::map<int, LayerCache>& begin(const Pass& pass);

  const PageRoom& room() const { return room_; }

 private:
  std::map<int, LayerCache> layers_;
  PageRoom room_;
  std::unique_ptr<LowerPages> lower_;  // null if there is no lower tier
  std::vector<SequenceTokens> pass_;
};

}  // namespace strata

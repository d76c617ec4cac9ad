/// Counts who still needs a value on each rank that holds it: layers that read it there, and ranks that have
/// still to receive it from there.
///
/// A value is held by few ranks: its producer's and its readers', each with a counter for every micro-batch.
///
/// Cost    a search among a value's holders, of which there are few.
#pragma once

#include <cstddef>
#include <vector>

#include "strata/schedule/dataflow.h"

namespace strata {

class ValueHolders {
 public:
  ValueHolders(const Dataflow& dataflow, const LayerPlacement& placement, int num_micro_batches);

  /// The counter of a holder; zero until somebody sets it.
  int& references(int value, int rank, int micro_batch) {
    return references_[holder(value, rank).references + micro_batch];
  }
  /// Layers of the rank that read the value.
  int readers(int value, int rank) const { return holder(value, rank).readers; }
  /// The holders beside the producer's rank.
  int ranks_served(int value) const {
    return static_cast<int>(first_holder_[value + 1] - first_holder_[value]) - 1;
  }

 private:
  struct Holder {
    int rank = 0;
    int readers = 0;
    std::size_t references = 0;  // of the first micro-batch
  };
  const Holder& holder(int value, int rank) const;

  std::vector<Holder> holders_;            // of all values, one after another, the producer's first
  std::vector<std::size_t> first_holder_;  // per value
  std::vector<int> references_;            // per holder and micro-batch
};

}  // namespace strata

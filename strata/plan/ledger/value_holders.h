/// Counts the remaining needs of a value on each rank that holds it: layers that read it there, and
/// ranks that have yet to receive it from there.
///
/// Few ranks hold a value: its producer's and its readers'. Each has a counter per micro-batch.
///
/// Cost    a search among the few holders of a value.
#pragma once

#include <cstddef>
#include <vector>

#include "strata/layout/dataflow.h"

namespace strata {

class ValueHolders {
 public:
  ValueHolders(const Dataflow& dataflow, const LayerPlacement& placement, int num_micro_batches);

  /// The counter of a holder; initially zero.
  int& references(int value, int rank, int micro_batch) {
    return references_[holder(value, rank).references + micro_batch];
  }
  /// The number of layers of the rank that read the value.
  int readers(int value, int rank) const { return holder(value, rank).readers; }
  /// The number of holders other than the producer's rank.
  int ranks_served(int value) const {
    return static_cast<int>(first_holder_[value + 1] - first_holder_[value]) - 1;
  }

 private:
  struct Holder {
    int rank = 0;
    int readers = 0;
    std::size_t references = 0;  // index of the first micro-batch's counter
  };
  const Holder& holder(int value, int rank) const;

  std::vector<Holder> holders_;            // of all values in order, the producer's holder first
  std::vector<std::size_t> first_holder_;  // per value
  std::vector<int> references_;            // per holder and micro-batch
};

}  // namespace strata

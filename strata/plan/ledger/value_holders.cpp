#include "strata/plan/ledger/value_holders.h"

namespace strata {

ValueHolders::ValueHolders(const Dataflow& dataflow, const LayerPlacement& placement,
                           int num_micro_batches) {
  std::size_t counters = 0;
  first_holder_.reserve(dataflow.values.size() + 1);
  for (const Value& value : dataflow.values) {
    first_holder_.push_back(holders_.size());
    const auto add = [&](int rank, int readers) {
      for (std::size_t h = first_holder_.back(); h < holders_.size(); ++h) {
        if (holders_[h].rank != rank) continue;
        holders_[h].readers += readers;
        return;
      }
      holders_.push_back({.rank = rank, .readers = readers, .references = counters});
      counters += num_micro_batches;
    };
    add(placement.rank[value.producer], 0);
    for (const int consumer : value.consumers) add(placement.rank[consumer], 1);
  }
  first_holder_.push_back(holders_.size());
  references_.resize(counters);
}

const ValueHolders::Holder& ValueHolders::holder(int value, int rank) const {
  std::size_t h = first_holder_[value];
  while (holders_[h].rank != rank) ++h;
  return holders_[h];
}

}  // namespace strata

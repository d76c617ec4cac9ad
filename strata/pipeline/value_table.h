/// Keeps the values of the micro-batches in flight until their last local use.
///
/// A value's bytes are let go by whoever takes it last: a consuming layer's forward or a send.
/// Layers that will run backward keep their inputs themselves.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <utility>

#include "strata/base/errors.h"

namespace strata {

class ValueTable {
 public:
  /// `uses`: how often take() will be called; a value nobody takes isn't kept.
  void put(int value, int micro_batch, at::Tensor tensor, int uses) {
    if (uses > 0) entries_.insert_or_assign({value, micro_batch}, Entry{std::move(tensor), uses});
  }

  at::Tensor take(int value, int micro_batch) {
    const auto entry = entries_.find({value, micro_batch});
    STRATA_CHECK(entry != entries_.end(), "pipeline.take_value");
    if (--entry->second.uses > 0) return entry->second.tensor;
    at::Tensor tensor = std::move(entry->second.tensor);
    entries_.erase(entry);
    return tensor;
  }

  void clear() { entries_.clear(); }

 private:
  struct Entry {
    at::Tensor tensor;
    int uses;
  };
  std::map<std::pair<int, int>, Entry> entries_;
};

}  // namespace strata

/// Keeps the values of the micro-batches in flight until their last local use, and the gradients of
/// values until the producer's backward sums them.
///
/// Threads  a table belongs to one rank's thread.
/// Errors   InternalError: a value or gradient that is not there, or there twice.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <tuple>
#include <utility>

#include "strata/base/errors.h"
#include "strata/layout/dataflow.h"

namespace strata {

/// Copies tensors to those with the same key, unless they are identical.
void write_to(const at::Tensor& from, const at::Tensor& to);
template <typename Key>
void copy_entries(const std::map<Key, at::Tensor>& from, const std::map<Key, at::Tensor>& to) {
  STRATA_CHECK_EQ(from.size(), to.size(), "pipeline.copy_tables");
  for (const auto& [key, tensor] : from) write_to(tensor, to.at(key));
}

/// A copy if elements share memory.
at::Tensor dense_form(const at::Tensor& tensor);

/// The last action that takes a value, a forward or a send, frees its bytes. Layers with a backward
/// keep their inputs themselves.
class ValueTable {
 public:
  /// `uses`: the number of take() calls; with 0 the value is not kept.
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

  /// Copies the values to the addresses of `to`, which has the same entries.
  void copy_to(ValueTable& to) const;
  /// Replaces values whose elements share memory by copies.
  void make_dense();

 private:
  struct Entry {
    at::Tensor tensor;
    int uses;
  };
  std::map<std::pair<int, int>, Entry> entries_;
};

/// One gradient per (value, consuming layer, micro-batch). They are summed in descending consumer
/// order, independently of arrival, so that the bits do not depend on the partition.
class GradientTable {
 public:
  void put(int value, int consumer, int micro_batch, at::Tensor gradient);
  at::Tensor take(int value, int consumer, int micro_batch);

  /// Takes the gradients of all consumers and adds them; undefined when there is no consumer.
  at::Tensor take_sum(const Value& value, int index, int micro_batch);

  bool empty() const { return entries_.empty(); }
  void copy_to(GradientTable& to) const { copy_entries(entries_, to.entries_); }
  void make_dense() {
    for (auto& [key, tensor] : entries_) tensor = dense_form(tensor);
  }

 private:
  std::map<std::tuple<int, int, int>, at::Tensor> entries_;
};

}  // namespace strata

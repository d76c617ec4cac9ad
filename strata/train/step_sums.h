/// Sums what every rank knows of a step over all ranks, in one collective.
///
///     StepSums sums(group);
///     sums.of_each_rank(busy, &busy_seconds);
///     sums.largest(waited, &record.wait_seconds);
///     sums.share();  // fills in busy_seconds and record.wait_seconds, equal on every rank
///
/// Every rank adds the same numbers in the same order. Targets must live until share() returns.
///
/// Threads  collective.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "strata/comm/group.h"

namespace strata {

class StepSums {
 public:
  explicit StepSums(Group& group) : group_(group) {}

  void sum(double own, double* all);
  void sum(std::int64_t own, std::int64_t* all);  ///< exact up to 2^53
  void largest(double own, double* all);
  void any(bool own, bool* all);
  void of_each_rank(double own, std::vector<double>* all);
  void of_each_rank(std::int64_t own, std::vector<std::int64_t>* all);

  void share();

 private:
  using Read = std::function<void(std::span<const double>)>;
  void add_sum(double own, Read read);
  void add_each(double own, Read read);

  struct Number {
    std::size_t first, count;
    Read read;
  };
  Group& group_;
  std::vector<double> values_;
  std::vector<Number> numbers_;
};

}  // namespace strata

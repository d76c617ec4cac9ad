#include "strata/train/step_sums.h"

#include <algorithm>
#include <utility>

namespace strata {

void StepSums::add_sum(double own, Read read) {
  numbers_.push_back({values_.size(), 1, std::move(read)});
  values_.push_back(own);
}

void StepSums::add_each(double own, Read read) {
  const std::size_t first = values_.size(), ranks = static_cast<std::size_t>(group_.size());
  numbers_.push_back({first, ranks, std::move(read)});
  values_.resize(first + ranks, 0.0);
  values_[first + static_cast<std::size_t>(group_.rank())] = own;
}

void StepSums::sum(double own, double* all) {
  add_sum(own, [all](std::span<const double> sum) { *all = sum[0]; });
}

void StepSums::sum(std::int64_t own, std::int64_t* all) {
  add_sum(static_cast<double>(own),
          [all](std::span<const double> sum) { *all = static_cast<std::int64_t>(sum[0]); });
}

void StepSums::any(bool own, bool* all) {
  add_sum(own ? 1 : 0, [all](std::span<const double> sum) { *all = sum[0] > 0; });
}

void StepSums::largest(double own, double* all) {
  add_each(own, [all](std::span<const double> each) { *all = std::ranges::max(each); });
}

void StepSums::of_each_rank(double own, std::vector<double>* all) {
  add_each(own, [all](std::span<const double> each) { all->assign(each.begin(), each.end()); });
}

void StepSums::of_each_rank(std::int64_t own, std::vector<std::int64_t>* all) {
  add_each(static_cast<double>(own), [all](std::span<const double> each) {
    all->clear();
    for (const double number : each) all->push_back(static_cast<std::int64_t>(number));
  });
}

void StepSums::share() {
  group_.all_reduce(values_);
  for (const Number& number : numbers_)
    number.read(std::span<const double>(values_).subspan(number.first, number.count));
  values_.clear();
  numbers_.clear();
}

}  // namespace strata

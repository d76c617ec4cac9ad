// A table under a budget of bytes, read and updated by far more ids than it has room for. Prints
// lines of JSON: one every so many steps, the last one of all.
//
// Ids are drawn from 10^12: some by Zipf's law, whose ranks get new ids one after another, the
// others uniformly. Initial values are 0 and gradients are not, so a row that reads as another
// value than 0 is counted as a hit. The hits are compared with the lookups of the ids that are most
// likely at the time, as many as fit: no policy without knowledge of the future has more hits.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "process_use.h"
#include "strata/base/philox.h"
#include "strata/rowserver/rows/row_table.h"
#include "strata/tabular/synthetic.h"

namespace {

using namespace strata;
using Ids = std::vector<std::uint64_t>;

constexpr std::int64_t kLogicalIds = 1'000'000'000'000;
constexpr std::size_t kBatch = 65536;
constexpr double kExponent = 1.05;

struct Options {
  std::int64_t ids, budget_bytes, threshold, steps_to_live;
  std::string policy;
  double uniform_share;
  std::int64_t steps_of_an_id;  // before another one has its rank
};

// Numbers in (0, 1).
class Draws {
 public:
  std::uint64_t word() { return mix_key(17, next_++); }
  double operator()() { return (static_cast<double>(word() >> 12) + 0.5) * 0x1p-52; }

 private:
  std::uint64_t next_ = 0;
};

FeatureSpec spec_of(const Options& options) {
  FeatureSpec spec;
  spec.name = "bench";
  spec.width = 16;
  spec.precision = RowPrecision::kFp16;
  spec.init.kind = RowInit::Kind::kZeros;
  spec.optimizer.kind = RowOptimizerKind::kRowWiseAdagrad;
  spec.eviction.policy =
      options.policy == "lfu" ? RowEviction::Policy::kLeastFrequent : RowEviction::Policy::kClock;
  spec.eviction.steps_to_live = options.steps_to_live;
  spec.admission = {
      .filter = options.threshold > 1 ? RowAdmission::Filter::kExact : RowAdmission::Filter::kNone,
      .threshold = options.threshold};
  return spec;
}

// Zipf's law over the first `count` ranks: summed up to 2^20, then by the midpoint rule.
double weight_of_first(double count) {
  constexpr double kSummed = 1 << 20;
  double sum = 0;
  for (double rank = std::min(count, kSummed); rank >= 1; --rank) sum += std::pow(rank, -kExponent);
  if (count <= kSummed) return sum;
  const double power = 1 - kExponent;
  return sum + (std::pow(count + 0.5, power) - std::pow(kSummed + 0.5, power)) / power;
}

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        before_(resident_bytes()),
        table_({spec_of(options)}, {.memory_bytes = options.budget_bytes}),
        layout_(spec_of(options)),
        ranks_(kLogicalIds, kExponent),
        all_weight_(weight_of_first(static_cast<double>(kLogicalIds))) {
    gradients_.assign(kBatch * 16, 0.25f);
    values_.resize(kBatch * 16);
  }

  void run() {
    const std::int64_t steps = options_.ids / static_cast<std::int64_t>(kBatch);
    const double begin = processor_seconds();
    for (std::int64_t step = 0; step < steps; ++step) {
      if (step == steps / 2) half_ = {lookups_, hits_};
      one_step(step);
      if ((step + 1) % std::max<std::int64_t>(1, steps / 20) == 0 || step + 1 == steps)
        print(step + 1, processor_seconds() - begin);
    }
  }

 private:
  std::uint64_t draw(std::int64_t step) {
    const std::uint64_t kind = draws_.word();
    const auto logical = [](std::uint64_t key) {
      return mix_key(key % static_cast<std::uint64_t>(kLogicalIds), 99);
    };
    if (static_cast<double>(kind >> 11) * 0x1p-53 < options_.uniform_share)
      return logical(draws_.word());
    const auto rank = static_cast<std::uint64_t>(ranks_.draw([this] { return draws_(); }));
    // Each rank changes hands at steps of its own.
    const auto period = static_cast<std::uint64_t>(options_.steps_of_an_id);
    const std::uint64_t owner =
        (static_cast<std::uint64_t>(step) + mix_key(rank, 5) % period) / period;
    return logical(mix_key(rank, owner));
  }

  void one_step(std::int64_t step) {
    Ids ids(kBatch);
    for (std::uint64_t& id : ids) id = draw(step);
    std::sort(ids.begin(), ids.end());
    distinct_.clear();
    counts_.clear();
    for (const std::uint64_t id : ids) {
      if (distinct_.empty() || distinct_.back() != id)
        distinct_.push_back(id), counts_.push_back(0);
      ++counts_.back();
    }
    const std::size_t count = distinct_.size();
    const double reading = processor_seconds();
    table_.read(0, distinct_, {values_.data(), count * 16});
    const double updating = processor_seconds();
    table_.update(step, 0, distinct_, {gradients_.data(), count * 16}, 1.0);
    table_.end_step(step);
    table_seconds_ += processor_seconds() - reading;
    read_seconds_ += updating - reading;
    distinct_lookups_ += static_cast<double>(count);
    for (std::size_t i = 0; i < count; ++i)
      if (values_[i * 16] != 0) hits_ += static_cast<double>(counts_[i]);
    lookups_ += static_cast<double>(kBatch);
    most_used_ = std::max(most_used_, table_.used_bytes());
    most_bytes_ = std::max(most_bytes_, table_.bytes());
    if (table_.used_bytes() > options_.budget_bytes)
      throw std::runtime_error("the table takes more than its budget");
  }

  void print(std::int64_t steps, double seconds) {
    const FeatureCounts counts = table_.counts(0);
    // Rows alone, none of them for candidates.
    const double fit =
        std::floor(static_cast<double>(options_.budget_bytes) / layout_.cost_bytes());
    const double best = (1 - options_.uniform_share) * weight_of_first(fit) / all_weight_;
    const double late =
        lookups_ > half_.lookups ? (hits_ - half_.hits) / (lookups_ - half_.lookups) : 0;
    std::printf(
        "{\"ids\": %.0f, \"steps\": %lld, \"seconds\": %.1f, \"rows\": %lld, \"candidates\": %lld, "
        "\"admitted\": %lld, \"evicted\": %lld, \"expired\": %lld, \"used_bytes\": %lld, "
        "\"most_used_bytes\": %lld, \"budget_bytes\": %lld, \"allocated_bytes\": %lld, "
        "\"most_allocated_bytes\": %lld, \"process_bytes\": %.0f, \"payload_bytes\": %d, "
        "\"hit_rate\": %.4f, \"hit_rate_of_second_half\": %.4f, \"best_hit_rate\": %.4f, "
        "\"distinct\": %.0f, \"read_seconds\": %.1f, \"table_seconds\": %.1f}\n",
        lookups_, static_cast<long long>(steps), seconds, static_cast<long long>(counts.rows),
        static_cast<long long>(counts.candidates), static_cast<long long>(counts.admitted),
        static_cast<long long>(counts.evicted), static_cast<long long>(counts.expired),
        static_cast<long long>(table_.used_bytes()), static_cast<long long>(most_used_),
        static_cast<long long>(options_.budget_bytes), static_cast<long long>(table_.bytes()),
        static_cast<long long>(most_bytes_), resident_bytes() - before_, layout_.payload_bytes(),
        hits_ / lookups_, late, best, distinct_lookups_, read_seconds_, table_seconds_);
    std::fflush(stdout);
  }

  const Options options_;
  const double before_;
  RowTable table_;
  const RowLayout layout_;
  const ZipfDistribution ranks_;
  const double all_weight_;
  Draws draws_;
  Ids distinct_;
  std::vector<std::uint32_t> counts_;
  std::vector<float> values_, gradients_;
  double lookups_ = 0, hits_ = 0, distinct_lookups_ = 0, read_seconds_ = 0, table_seconds_ = 0;
  struct {
    double lookups = 0, hits = 0;
  } half_;
  std::int64_t most_used_ = 0, most_bytes_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) {
    std::cerr << "budget_bench IDS BUDGET_BYTES clock|lfu THRESHOLD STEPS_TO_LIVE UNIFORM_SHARE "
                 "STEPS_OF_AN_ID\n";
    return 2;
  }
  try {
    Bench({.ids = std::stoll(argv[1]),
           .budget_bytes = std::stoll(argv[2]),
           .threshold = std::stoll(argv[4]),
           .steps_to_live = std::stoll(argv[5]),
           .policy = argv[3],
           .uniform_share = std::stod(argv[6]),
           .steps_of_an_id = std::stoll(argv[7])})
        .run();
  } catch (const std::exception& error) {
    std::cerr << "budget_bench: " << error.what() << '\n';
    return 1;
  }
}

// A table of rows in one thread, and what memory allows. Fills the table, then does what lines of
// its input name for so many seconds and answers each with a line of JSON.
//
//   read     rows of batches of ids, as they come
//   update   the optimizer's update of the distinct ids of batches
//   chase    reads of cache lines, each of which says where the next one is
//   lines    reads of cache lines whose places are known ahead, fetched like rows
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "process_use.h"
#include "strata/base/philox.h"
#include "strata/rowserver/rows/row_table.h"

namespace {

using namespace strata;
using Ids = std::vector<std::uint64_t>;

constexpr std::size_t kBatch = 65536;

struct Options {
  std::uint64_t rows;
  int width;
  std::string optimizer, precision, batches;
  double seconds;
};

// Ids of logs are hashes; rows lie as they came, in no order of ids.
std::uint64_t id_of(std::uint64_t number) { return mix_key(number, 99); }

FeatureSpec spec_of(const Options& options) {
  FeatureSpec spec;
  spec.name = "bench";
  spec.width = options.width;
  if (options.optimizer == "rowwise_adagrad")
    spec.optimizer.kind = RowOptimizerKind::kRowWiseAdagrad;
  if (options.precision == "fp16") spec.precision = RowPrecision::kFp16;
  if (options.precision == "int8") spec.precision = RowPrecision::kInt8;
  return spec;
}

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options), table_({spec_of(options)}) {
    const double before = resident_bytes();
    fill();
    row_bytes_ = (resident_bytes() - before) / static_cast<double>(options.rows);
    load_batches();
    make_lines();
  }

  std::string run(const std::string& what) {
    std::size_t done = 0, turn = 0;
    const double begin = processor_seconds();
    double seconds = 0;
    do {
      done += once(what, turn++);
      seconds = processor_seconds() - begin;
    } while (seconds < options_.seconds);
    char line[200];
    std::snprintf(line, sizeof(line),
                  "{\"per_second\": %.0f, \"resident_bytes_per_row\": %.2f, \"check\": %g}",
                  static_cast<double>(done) / seconds, row_bytes_, static_cast<double>(check_));
    return line;
  }

 private:
  void fill() {
    std::vector<std::uint32_t> order(options_.rows);
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(1));
    for (std::size_t begin = 0; begin < order.size(); begin += kBatch) {
      Ids ids;
      for (std::size_t i = begin; i < std::min(order.size(), begin + kBatch); ++i)
        ids.push_back(id_of(order[i]));
      std::sort(ids.begin(), ids.end());
      gradients_.assign(ids.size() * options_.width, 0.25f);
      table_.update(step_++, 0, ids, gradients_, 1.0);
    }
  }

  void load_batches() {
    std::ifstream file(options_.batches, std::ios::binary);
    Ids batch(kBatch);
    while (file.read(reinterpret_cast<char*>(batch.data()), kBatch * 8)) {
      for (std::uint64_t& id : batch) id = id_of(id);
      reads_.push_back(batch);
      Ids distinct = batch;
      std::sort(distinct.begin(), distinct.end());
      distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
      updates_.push_back(std::move(distinct));
    }
    if (reads_.empty()) {
      std::cerr << "embedding_bench: no batches in " << options_.batches << '\n';
      std::exit(2);
    }
    values_.resize(kBatch * options_.width);
    gradients_.assign(kBatch * options_.width, 0.25f);
  }

  // As many bytes as the table, at most a GiB, one cycle through all lines.
  void make_lines() {
    const std::size_t bytes = std::min<std::size_t>(table_.bytes(), std::size_t{1} << 30);
    num_lines_ = bytes / 64;
    void* memory =
        mmap(nullptr, num_lines_ * 64, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, num_lines_ * 64, MADV_HUGEPAGE);
    lines_ = static_cast<std::uint64_t*>(memory);
    std::vector<std::uint32_t> cycle(num_lines_);
    std::iota(cycle.begin(), cycle.end(), 0u);
    std::shuffle(cycle.begin(), cycle.end(), std::mt19937_64(2));
    for (std::size_t i = 0; i < num_lines_; ++i)
      lines_[std::size_t{cycle[i]} * 8] = cycle[(i + 1) % num_lines_];
  }

  std::size_t once(const std::string& what, std::size_t turn) {
    const std::size_t at = turn % reads_.size();
    if (what == "read") {
      table_.read(0, reads_[at], values_);
      check_ += values_[turn % values_.size()];
      return reads_[at].size();
    }
    if (what == "update") {
      const Ids& ids = updates_[at];
      table_.update(step_++, 0, ids, {gradients_.data(), ids.size() * options_.width}, 1.0);
      return ids.size();
    }
    if (what == "chase") {
      for (std::size_t i = 0; i < kBatch; ++i) line_ = lines_[line_ * 8];
      check_ += static_cast<float>(line_);
      return kBatch;
    }
    const Ids& ids = reads_[at];
    constexpr std::size_t kAhead = 32;
    const auto place = [&](std::size_t i) {
      return lines_ + (static_cast<unsigned __int128>(ids[i]) * num_lines_ >> 64) * 8;
    };
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (i + kAhead < ids.size()) __builtin_prefetch(place(i + kAhead));
      sum += *place(i);
    }
    check_ += static_cast<float>(sum);
    return ids.size();
  }

  Options options_;
  RowTable table_;
  std::int64_t step_ = 0;
  double row_bytes_ = 0;
  std::vector<Ids> reads_, updates_;
  std::vector<float> values_, gradients_;
  std::uint64_t* lines_ = nullptr;
  std::size_t num_lines_ = 0;
  std::uint64_t line_ = 0;
  float check_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::cerr << "embedding_bench ROWS WIDTH OPTIMIZER PRECISION BATCHES SECONDS\n";
    return 2;
  }
  Bench bench(
      {std::stoull(argv[1]), std::stoi(argv[2]), argv[3], argv[4], argv[5], std::stod(argv[6])});
  for (std::string line; std::getline(std::cin, line);) std::cout << bench.run(line) << std::endl;
}

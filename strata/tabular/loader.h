/// Makes the mini-batches of a recommender's run from files of samples, in an order that needs no
/// memory.
///
/// Threads  const, any thread.
/// Cost     per sample one read of the file and one pass over its text.
/// Errors   UserError: those of files and texts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "strata/base/sampler.h"
#include "strata/tabular/preprocessing.h"
#include "strata/tabular/synthetic.h"

namespace strata {

/// Reads samples of one file through a preprocessing.
class SampleReader {
 public:
  SampleReader(std::shared_ptr<const SampleFile> file,
               std::shared_ptr<const Preprocessing> preprocessing);

  const SampleFile& file() const { return *file_; }
  int categorical_column(std::size_t feature) const { return categorical_[feature]; }

  /// Reads samples `which`, in this order.
  SampleBatch read(const std::vector<std::int64_t>& which) const;

 private:
  std::shared_ptr<const SampleFile> file_;
  std::shared_ptr<const Preprocessing> preprocessing_;
  int label_ = 0, group_ = -1;
  std::vector<int> numeric_, categorical_;  // columns of features
};

/// Reads samples endlessly. The only state is the number of samples seen, which the caller keeps.
class TabularLoader {
 public:
  /// Reads samples [0, count) of the reader's file.
  TabularLoader(SampleReader reader, std::int64_t count, bool shuffle, EpochEnd last_batch,
                std::uint64_t seed);

  std::int64_t samples() const { return count_; }  ///< per epoch
  const SampleReader& reader() const { return reader_; }

  /// The number of samples in the mini-batch that begins after `samples_seen`; smaller than
  /// `mini_batch` only at the end of an epoch with EpochEnd::kShort. A dropped end is not counted
  /// as seen: `samples_seen` is always the sum of the earlier mini-batches.
  std::int64_t size(std::int64_t samples_seen, std::int64_t mini_batch) const;

  /// Returns that mini-batch, or its samples [first, first + count): a rank's part.
  SampleBatch at(std::int64_t samples_seen, std::int64_t mini_batch) const;
  SampleBatch at(std::int64_t samples_seen, std::int64_t mini_batch, std::int64_t first,
                 std::int64_t count) const;

  double epochs(std::int64_t samples_seen, std::int64_t mini_batch) const;

  /// The number of whole mini-batches in these epochs, and with EpochEnd::kShort also the short
  /// ones.
  std::int64_t steps(std::int64_t epochs, std::int64_t mini_batch) const;

 private:
  std::int64_t used(std::int64_t mini_batch) const;

  SampleReader reader_;
  std::int64_t count_;
  EpochEnd last_batch_;
  Sampler sampler_;
};

/// Reads every sample once, in the order of the file; the last mini-batch may be short.
class TabularValidationLoader {
 public:
  /// Reads samples [begin, begin + count).
  TabularValidationLoader(SampleReader reader, std::int64_t begin, std::int64_t count);
  std::int64_t samples() const { return count_; }

  /// Samples [first, first + mini_batch), cut at the end; beyond it empty (samples == 0).
  SampleBatch at(std::int64_t first, std::int64_t mini_batch) const;

  /// Samples `which` of them, in this order.
  SampleBatch read(std::vector<std::int64_t> which) const;

 private:
  SampleReader reader_;
  std::int64_t begin_, count_;
};

struct TabularData {
  std::shared_ptr<const Preprocessing> preprocessing;  ///< has the complete() options
  TabularLoader train;
  TabularValidationLoader validation;  ///< without samples: no validation was requested
  /// null for files; bayes() is its best possible quality
  std::shared_ptr<const SyntheticClicks> synthetic;
  std::vector<std::string> notices = {};  ///< warnings for the user about probable mistakes
};

/// Opens the data of the options. `seed` determines the order of samples. `state`: the
/// preprocessing from a checkpoint; empty: fits it on the training samples.
TabularData open_tabular(const TabularOptions& options, std::uint64_t seed,
                         const std::string& state = "");

}  // namespace strata

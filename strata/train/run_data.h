/// Opens what a run learns from, whatever its recipe trains: windows of a text, or samples of logs.
///
/// Threads  const, any thread: every rank reads its own copy.
/// Errors   UserError: what the files' owners refuse.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "strata/data/corpus.h"
#include "strata/data/loader.h"
#include "strata/tabular/loader.h"
#include "strata/train/recipe.h"

namespace strata {

class RunData {
 public:
  virtual ~RunData() = default;

  /// The mini-batch that begins where so many samples were seen.
  virtual MiniBatch at(std::int64_t samples_seen) const = 0;
  /// Samples seen behind it.
  virtual std::int64_t seen_after(std::int64_t samples_seen) const = 0;

  /// Of the whole run: the recipe's, or as many as its epochs take.
  virtual std::int64_t steps() const = 0;
  /// What a loss is the mean of, and speed counts: "token", "sample".
  virtual std::string unit() const = 0;
  /// Whether there are samples that the model is evaluated on.
  virtual bool evaluates() const = 0;
  /// Whose mean loss is that of validation; none where a model is evaluated otherwise.
  virtual std::vector<MiniBatch> validation() const { return {}; }
  /// For people: what of the data may not be meant so, a sentence each.
  virtual std::vector<std::string> notices() const { return {}; }
  /// What a run that goes on has to know of these data: files of a checkpoint, by name.
  virtual std::map<std::string, std::string> texts() const { return {}; }
};

class TextData final : public RunData {
 public:
  explicit TextData(const Recipe& recipe);
  MiniBatch at(std::int64_t samples_seen) const override;
  std::int64_t seen_after(std::int64_t samples_seen) const override;
  std::int64_t steps() const override { return options_.steps; }
  std::string unit() const override { return "token"; }
  bool evaluates() const override { return corpus_.validation.count > 0; }
  std::vector<MiniBatch> validation() const override;

 private:
  Corpus corpus_;
  TrainingLoader loader_;
  TrainOptions options_;
};

/// Mini-batches have the rows of their ids left open: [samples, 0].
class LogData final : public RunData {
 public:
  /// `state`: of the preprocessing, as a checkpoint has it; empty: learnt from the training samples.
  explicit LogData(const Recipe& recipe, const std::string& state = "");
  MiniBatch at(std::int64_t samples_seen) const override;
  std::int64_t seen_after(std::int64_t samples_seen) const override;
  std::int64_t steps() const override;
  std::string unit() const override { return "sample"; }
  bool evaluates() const override { return data_.validation.samples() > 0; }
  std::map<std::string, std::string> texts() const override;
  std::vector<std::string> notices() const override { return data_.notices; }
  const TabularData& tabular() const { return data_; }

  /// What the net reads of these samples, which are those from `first` on of so many; the others are
  /// somebody else's and zeros here.
  MiniBatch tensors_of(const SampleBatch& part, std::int64_t first, std::int64_t samples) const;

 private:
  TabularData data_;
  TrainOptions options_;
  std::int64_t epochs_;
};

/// What a checkpoint, or the newest of a folder, has kept of the preprocessing.
std::string saved_preprocessing(const std::string& checkpoint);

/// `resume`: the checkpoint, or its folder, that the run goes on from; what it had learnt of numbers and
/// texts holds on.
std::unique_ptr<RunData> open_data(const Recipe& recipe, const std::string& resume = "");

}  // namespace strata

/// Opens the text to train on, cuts it into samples for a language model, and holds some out for
/// validation.
///
/// Window i is tokens [i * context, i * context + context]: the first `context` are the input, the
/// last `context` the targets. Adjacent windows share one token; the rest at the end is unused.
///
/// Threads  const, any thread.
/// Errors   UserError: no file named, too few tokens for one window, a tokenizer that contradicts
///          the file or is larger than the vocabulary, token out of range.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "strata/base/options.h"
#include "strata/data/token_file.h"

namespace strata {

/// The text to train on and how it is read.
struct DataOptions {
  std::string train;                ///< path of a text file or a token file
  std::string tokenizer = "bytes";  ///< bytes | none (a token file) | path of a tokenizer.json
  std::string validation;           ///< path; empty: the end of `train`
  /// share of the windows of `train`; unused with `validation`
  double validation_fraction = 0.05;
  bool shuffle = true;
};

void describe(OptionSet& set, const std::string& prefix, DataOptions& options);

/// A run of consecutive windows of one file.
struct Windows {
  std::shared_ptr<const TokenFile> file;
  std::int64_t context = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;

  /// Window `index` < count of this run; both outputs hold `context` tokens.
  void read(std::int64_t index, std::span<std::int64_t> inputs,
            std::span<std::int64_t> targets) const;
};

struct Corpus {
  Windows train;
  Windows validation;  ///< count 0: no validation was requested
};

/// Opens the files of `options` for a model with this context and vocabulary. A text with a
/// tokenizer is converted here, which takes about a second for 5 MB.
Corpus open_corpus(const DataOptions& options, std::int64_t context, std::int64_t vocabulary);

}  // namespace strata

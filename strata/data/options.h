/// Chooses the text to train on and how it is read.
#pragma once

#include <string>

#include "strata/base/options.h"

namespace strata {

struct DataOptions {
  std::string train;                  ///< path of a text file or a token file
  std::string tokenizer = "bytes";    ///< bytes | none (a token file) | path of a tokenizer.json
  std::string validation;             ///< path; empty: the end of `train`
  double validation_fraction = 0.05;  ///< of the windows of `train`; unused with `validation`
  bool shuffle = true;
};

void describe(OptionSet& set, const std::string& prefix, DataOptions& options);

}  // namespace strata

/// The fields of a recipe that trains an exported model: the file, the loss, and the arrays.
#pragma once

#include <string>
#include <vector>

#include "strata/base/options.h"
#include "strata/exported/exported_model.h"
#include "strata/images/augmentation.h"

namespace strata {

struct GraphModelFields {
  std::string file;                 ///< of torch.export.save()
  std::vector<std::string> layers;  ///< modules that become layers; empty: chosen
  ExportedLoss loss = ExportedLoss::kCrossEntropy;
  bool own_operations = false;
};

struct GraphDataFields {
  std::vector<std::string> inputs;             ///< a file for each input of the model
  std::string targets;                         ///< a file
  std::vector<std::string> validation_inputs;  ///< empty: the last samples of `inputs`
  std::string validation_targets;
  double validation_fraction = 0.05;
  bool shuffle = true;
  double scale = 1, shift = 0;  ///< of integers that become real inputs
  Augmentation augmentation;    ///< of the first input's training samples
};

void describe(OptionSet& set, const std::string& prefix, GraphModelFields& fields);
void describe(OptionSet& set, const std::string& prefix, GraphDataFields& fields);

}  // namespace strata

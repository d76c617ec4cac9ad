#include "strata/task/graph/graph_fields.h"

#include "strata/base/enum_names.h"

namespace strata {

void describe(OptionSet& set, const std::string& prefix, GraphModelFields& fields) {
  using enum ExportedLoss;
  set.add(prefix + ".file", &fields.file,
          {.help = "Model that torch.export.save() wrote, in training mode (docs/exported.md)."});
  set.add(prefix + ".layers", &fields.layers,
          {.help = "Modules that become layers, by path; empty: chosen from the model."});
  set.add(prefix + ".loss", &fields.loss,
          named({kCrossEntropy, kCrossEntropyOfChannels, kBinaryCrossEntropy, kSquaredError}),
          {.help = "Loss of the model's output: cross_entropy has the classes in the last "
                   "dimension, cross_entropy_of_channels in the second."});
  set.add(prefix + ".own_operations", &fields.own_operations,
          {.help = "Linear layers and layer norms by Strata's own operations: faster, with other "
                   "rounding than PyTorch's."});
}

void describe(OptionSet& set, const std::string& prefix, GraphDataFields& fields) {
  set.add(
      prefix + ".inputs", &fields.inputs,
      {.help = "Arrays (.npy, safetensors, IDX) of the model's inputs, in their order, whose first "
               "dimension is the samples; or a folder of images with a subfolder for each class."});
  set.add(
      prefix + ".targets", &fields.targets,
      {.help = "Array of the targets: classes, or numbers as the model's output; or the folder of "
               "images, for its classes."});
  set.add(prefix + ".validation_inputs", &fields.validation_inputs,
          {.help = "Arrays of the inputs to validate on; empty: the last training samples."});
  set.add(prefix + ".validation_targets", &fields.validation_targets,
          {.help = "Array of their targets."});
  set.add(prefix + ".validation_fraction", &fields.validation_fraction,
          {.help = "Fraction of the training samples kept for validation, at their end; 0 keeps "
                   "none. Unused with validation_inputs.",
           .unit = "ratio",
           .minimum = 0,
           .maximum = 0.5});
  set.add(prefix + ".shuffle", &fields.shuffle,
          {.help = "Draw the samples of every epoch in an order of its own."});
  set.add(prefix + ".scale", &fields.scale,
          {.help = "Integers of a real input are multiplied by this: 0.00392156862745098 makes "
                   "bytes 0 to 1."});
  set.add(prefix + ".shift", &fields.shift,
          {.help = "Added to integers of a real input after the multiplication."});
  set.add(prefix + ".flip", &fields.augmentation.flip,
          {.help = "Mirrors half of the training images, left to right."});
  constexpr int kMostPadding = 1024;
  set.add(
      prefix + ".crop_padding", &fields.augmentation.crop_padding,
      {.help = "Training images are cut again from an image with so many pixels of zeros around.",
       .unit = "pixels",
       .minimum = 0,
       .maximum = kMostPadding});
}

}  // namespace strata

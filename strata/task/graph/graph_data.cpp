#include "strata/task/graph/graph_data.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/data/array_file.h"
#include "strata/images/image_folder.h"

namespace strata {
namespace {

constexpr ErrorSource kDataErrors{"graph.data", "write arrays that fit the exported model"};

std::string text_of(at::ScalarType dtype, at::IntArrayRef sample) {
  std::string text = std::string(c10::toString(dtype)) + " [samples";
  for (const std::int64_t size : sample) text += ", " + std::to_string(size);
  return text + "]";
}

// `spec` is that of one sample.
void require_fits(const SampleArray& array, const TensorSpec& spec, const std::string& field) {
  const bool is_real = c10::isFloatingType(array.dtype());
  if (array.sample_numel() == spec.numel() && (!is_real || c10::isFloatingType(spec.dtype))) return;
  throw kDataErrors.user(field + ", " + array.path(), "the array does not fit the model",
                         text_of(spec.dtype, at::IntArrayRef(spec.shape).slice(1)) +
                             ", or other dimensions with as many elements",
                         text_of(array.dtype(), at::IntArrayRef(array.shape()).slice(1)));
}

// Folders number their classes by themselves.
void require_same_classes(const GraphDataFields& fields) {
  const std::string &training = fields.targets, &validation = fields.validation_targets;
  if (!std::filesystem::is_directory(training) || !std::filesystem::is_directory(validation))
    return;
  if (folder_class_names(training) == folder_class_names(validation)) return;
  throw kDataErrors.user("data.validation_targets, " + validation,
                         "the folder has other classes than that of the training samples",
                         "the subfolders of " + training, "others",
                         "make a subfolder of each name in both");
}

// A folder gives images of the model's size, or their classes.
std::unique_ptr<const SampleArray> open_array(const std::string& path, const TensorSpec& spec,
                                              bool is_target) {
  if (!std::filesystem::is_directory(path))
    return std::make_unique<ArrayFile>(ArrayFile::open(path));
  if (is_target) return folder_classes(path);
  if (spec.shape.size() != 4)
    throw kDataErrors.user(
        path, "the model's input is no image", "[samples, channels, height, width]",
        text_of(spec.dtype, at::IntArrayRef(spec.shape).slice(1)), "name an array of numbers");
  return folder_images(path, spec.shape[1], spec.shape[2], spec.shape[3]);
}

std::vector<std::int64_t> range(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = first + static_cast<std::int64_t>(i);
  return numbers;
}

}  // namespace

GraphData::GraphData(const GraphDataFields& fields, GraphSamples samples,
                     const TrainOptions& options)
    : fields_(fields), model_(std::move(samples)), options_(options) {
  training_ = open(fields.inputs, fields.targets, "data.inputs", "data.targets");
  check_scale();
  check_augmentation();
  if (!fields.validation_inputs.empty() || !fields.validation_targets.empty()) {
    validation_ = open(fields.validation_inputs, fields.validation_targets,
                       "data.validation_inputs", "data.validation_targets");
    require_same_classes(fields);
  } else if (fields.validation_fraction > 0) {
    if (training_.count < 2)
      throw kDataErrors.user("data.validation_fraction",
                             "one sample cannot be split into training and validation",
                             "at least 2 samples", "1", "set data.validation_fraction=0");
    const auto wanted = static_cast<std::int64_t>(fields.validation_fraction *
                                                  static_cast<double>(training_.count));
    const std::int64_t held_out = std::clamp<std::int64_t>(wanted, 1, training_.count - 1);
    training_.count -= held_out;
    validation_ = training_;
    validation_.first = training_.count;
    validation_.count = held_out;
  }
  sampler_.emplace(training_.count, fields.shuffle, static_cast<std::uint64_t>(options.seed));
}

GraphData::Samples GraphData::open(const std::vector<std::string>& inputs,
                                   const std::string& targets, const char* inputs_field,
                                   const char* targets_field) const {
  if (inputs.size() + 1 != model_.specs.size())
    throw kDataErrors.user(inputs_field, "the model has another number of inputs",
                           std::to_string(model_.specs.size() - 1) + " files",
                           std::to_string(inputs.size()), "name a file for each input");
  if (targets.empty())
    throw kDataErrors.user(targets_field, "no targets", "the path of a file", "nothing",
                           std::string("set ") + targets_field);
  Samples samples;
  for (std::size_t i = 0; i < model_.specs.size(); ++i) {
    const bool is_target = i == inputs.size();
    std::shared_ptr<const SampleArray> array =
        open_array(is_target ? targets : inputs[i], model_.specs[i], is_target);
    require_fits(*array, model_.specs[i], is_target ? targets_field : inputs_field);
    if (i > 0 && array->count() != samples.count)
      throw kDataErrors.user(
          array->path(), "the arrays have different numbers of samples",
          std::to_string(samples.count) + ", as " + samples.arrays[0]->path() + " has",
          std::to_string(array->count()));
    samples.count = array->count();
    samples.arrays.push_back(std::move(array));
  }
  return samples;
}

at::Tensor GraphData::converted(const at::Tensor& samples, const TensorSpec& spec,
                                bool is_target) const {
  std::vector<std::int64_t> shape = spec.shape;
  shape[0] = samples.size(0);
  at::Tensor values = samples.view(shape).to(spec.dtype);
  const bool scaled =
      !is_target && c10::isFloatingType(spec.dtype) && !c10::isFloatingType(samples.scalar_type());
  if (scaled && fields_.scale != 1) values.mul_(fields_.scale);
  if (scaled && fields_.shift != 0) values.add_(fields_.shift);
  return values;
}

void GraphData::check_augmentation() const {
  if (!fields_.augmentation.changes()) return;
  const TensorSpec& spec = model_.specs[0];
  // What else belongs to places of the image would have to change with it.
  const bool alone = std::all_of(model_.specs.begin() + 1, model_.specs.end(),
                                 [](const TensorSpec& other) { return other.shape.size() <= 2; });
  if (!alone)
    throw kDataErrors.user(fields_.augmentation.flip ? "data.flip" : "data.crop_padding",
                           "targets or other inputs of several dimensions do not follow the image",
                           "a class of each image", "a value of each place",
                           "leave out data.flip and data.crop_padding");
  if (spec.shape.size() == 4 && c10::isFloatingType(spec.dtype)) return;
  throw kDataErrors.user(fields_.augmentation.flip ? "data.flip" : "data.crop_padding",
                         "the model's first input is no image",
                         "[samples, channels, height, width]",
                         text_of(spec.dtype, at::IntArrayRef(spec.shape).slice(1)),
                         "leave out data.flip and data.crop_padding");
}

void GraphData::check_scale() const {
  if (fields_.scale == 1 && fields_.shift == 0) return;
  for (std::size_t i = 0; i + 1 < model_.specs.size(); ++i)
    if (c10::isFloatingType(model_.specs[i].dtype) &&
        !c10::isFloatingType(training_.arrays[i]->dtype()))
      return;
  throw kDataErrors.user(fields_.scale == 1 ? "data.shift" : "data.scale",
                         "no array has integers for a real input", "integers, such as bytes",
                         c10::toString(training_.arrays[0]->dtype()),
                         "scale the array itself, and leave out data.scale and data.shift");
}

MiniBatch GraphData::batch(const Samples& from, const std::vector<std::int64_t>& numbers) const {
  std::vector<at::Tensor> tensors;
  for (std::size_t i = 0; i < model_.specs.size(); ++i)
    tensors.push_back(
        converted(from.arrays[i]->samples(numbers), model_.specs[i], i + 1 == model_.specs.size()));
  return graph_batch(model_, std::move(tensors), from.arrays.back()->path());
}

MiniBatch GraphData::at(std::int64_t samples_seen) const {
  std::vector<std::int64_t> numbers = range(samples_seen, options_.mini_batch);
  for (std::int64_t& number : numbers) number = sampler_->at(number);
  MiniBatch drawn = batch(training_, numbers);
  if (fields_.augmentation.changes())
    drawn.inputs[0] = augmented(drawn.inputs[0], fields_.augmentation,
                                static_cast<std::uint64_t>(options_.seed), samples_seen);
  return drawn;
}

std::int64_t GraphData::seen_after(std::int64_t samples_seen) const {
  return samples_seen + options_.mini_batch;
}

std::string GraphData::unit() const {
  return model_.specs.back().numel() == 1 ? "sample" : "target";
}

std::vector<MiniBatch> GraphData::validation() const {
  std::vector<MiniBatch> batches;
  const std::int64_t samples = validation_samples();
  for (std::int64_t first = 0; first < samples; first += options_.mini_batch)
    batches.push_back(batch(validation_, range(validation_.first + first,
                                               std::min(options_.mini_batch, samples - first))));
  return batches;
}

}  // namespace strata

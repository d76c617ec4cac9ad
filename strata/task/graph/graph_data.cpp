#include "strata/task/graph/graph_data.h"

#include <algorithm>

#include "strata/base/error_source.h"

namespace strata {
namespace {

constexpr ErrorSource kDataErrors{"graph.data", "write arrays that fit the exported model"};

std::string text_of(at::ScalarType dtype, at::IntArrayRef sample) {
  std::string text = std::string(c10::toString(dtype)) + " [samples";
  for (const std::int64_t size : sample) text += ", " + std::to_string(size);
  return text + "]";
}

// `spec` is that of one sample.
void require_fits(const ArrayFile& array, const TensorSpec& spec, const std::string& field) {
  const bool is_real = c10::isFloatingType(array.dtype());
  if (array.sample_numel() == spec.numel() && (!is_real || c10::isFloatingType(spec.dtype))) return;
  throw kDataErrors.user(field + ", " + array.path(), "the array does not fit the model",
                         text_of(spec.dtype, at::IntArrayRef(spec.shape).slice(1)) +
                             ", or other dimensions with as many elements",
                         text_of(array.dtype(), at::IntArrayRef(array.shape()).slice(1)));
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
  if (!fields.validation_inputs.empty() || !fields.validation_targets.empty()) {
    validation_ = open(fields.validation_inputs, fields.validation_targets,
                       "data.validation_inputs", "data.validation_targets");
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
    const ArrayFile array = ArrayFile::open(is_target ? targets : inputs[i]);
    require_fits(array, model_.specs[i], is_target ? targets_field : inputs_field);
    if (i > 0 && array.samples() != samples.count)
      throw kDataErrors.user(
          array.path(), "the arrays have different numbers of samples",
          std::to_string(samples.count) + ", as " + samples.arrays[0].path() + " has",
          std::to_string(array.samples()));
    samples.count = array.samples();
    samples.arrays.push_back(array);
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

void GraphData::check_scale() const {
  if (fields_.scale == 1 && fields_.shift == 0) return;
  for (std::size_t i = 0; i + 1 < model_.specs.size(); ++i)
    if (c10::isFloatingType(model_.specs[i].dtype) &&
        !c10::isFloatingType(training_.arrays[i].dtype()))
      return;
  throw kDataErrors.user(fields_.scale == 1 ? "data.shift" : "data.scale",
                         "no array has integers for a real input", "integers, such as bytes",
                         c10::toString(training_.arrays[0].dtype()),
                         "scale the array itself, and leave out data.scale and data.shift");
}

MiniBatch GraphData::batch(const Samples& from, const std::vector<std::int64_t>& numbers) const {
  std::vector<at::Tensor> tensors;
  for (std::size_t i = 0; i < model_.specs.size(); ++i)
    tensors.push_back(
        converted(from.arrays[i].samples(numbers), model_.specs[i], i + 1 == model_.specs.size()));
  return graph_batch(model_, std::move(tensors), from.arrays.back().path());
}

MiniBatch GraphData::at(std::int64_t samples_seen) const {
  std::vector<std::int64_t> numbers = range(samples_seen, options_.mini_batch);
  for (std::int64_t& number : numbers) number = sampler_->at(number);
  return batch(training_, numbers);
}

std::int64_t GraphData::seen_after(std::int64_t samples_seen) const {
  return samples_seen + options_.mini_batch;
}

std::string GraphData::unit() const {
  return model_.specs.back().numel() == 1 ? "sample" : "target";
}

std::vector<MiniBatch> GraphData::validation() const {
  std::vector<MiniBatch> batches;
  const std::int64_t samples = options_.validation_samples == 0
                                   ? validation_.count
                                   : std::min(options_.validation_samples, validation_.count);
  for (std::int64_t first = 0; first < samples; first += options_.mini_batch)
    batches.push_back(batch(validation_, range(validation_.first + first,
                                               std::min(options_.mini_batch, samples - first))));
  return batches;
}

}  // namespace strata

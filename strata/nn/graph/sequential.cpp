// Plans build models of 100,000 layers, so nothing here searches the earlier layers.
#include "strata/nn/graph/sequential.h"

#include <algorithm>

#include "strata/base/error_source.h"
#include "strata/base/errors.h"

namespace strata {
namespace {

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

constexpr ErrorSource kAddErrors{"nn.add"};

}  // namespace

Sequential::Sequential(std::vector<std::string> batch_inputs, TensorSplit split,
                       at::ScalarType precision)
    : batch_inputs_(std::move(batch_inputs)),
      wanted_(batch_inputs_.size(), false),
      read_(batch_inputs_.size(), false),
      split_(split),
      precision_(precision) {}

int Sequential::batch_input(const std::string& name) const {
  const auto found = std::find(batch_inputs_.begin(), batch_inputs_.end(), name);
  if (found == batch_inputs_.end()) {
    throw UserError({.operation = "nn.batch_input",
                     .where = name,
                     .what = "no such input of the mini-batch",
                     .expected = "one of: " + join(batch_inputs_),
                     .got = name,
                     .fix = "name one of them"});
  }
  return static_cast<int>(found - batch_inputs_.begin());
}

void Sequential::want_gradient(const std::string& batch_input) {
  const int index = this->batch_input(batch_input);
  STRATA_CHECK(!read_[index] && rows_input() < 0, "nn.want_gradient");
  wanted_[index] = true;
}

int Sequential::rows_input() const {
  const auto wanted = std::ranges::find(wanted_, true);
  return wanted == wanted_.end() ? -1 : static_cast<int>(wanted - wanted_.begin());
}

std::vector<bool> Sequential::differentiable_inputs(int layer) const {
  std::vector<bool> differentiable;
  for (const InputRef& ref : inputs_[layer])
    differentiable.push_back(ref.value >= 0 || wanted_[ref.batch_input]);
  return differentiable;
}

int Sequential::add(const std::string& name, std::shared_ptr<const Layer> layer,
                    const std::vector<std::string>& inputs,
                    const std::vector<std::string>& outputs) {
  const int index = num_layers();
  if (known_names_.contains(name))
    throw kAddErrors.user("layer " + name, "two layers of one name", "unique names", name,
                          "rename one of them");

  std::vector<InputRef> refs;
  for (const std::string& input : inputs) {
    InputRef ref;
    const auto latest = latest_.find(input);
    const auto batch = std::find(batch_inputs_.begin(), batch_inputs_.end(), input);
    if (latest != latest_.end()) {
      ref.value = latest->second;
      std::vector<int>& consumers = dataflow_.values[ref.value].consumers;
      if (!consumers.empty() && consumers.back() == index)
        throw kAddErrors.user("layer " + name, "an input is named twice", "each input once", input,
                              "name it once");
      consumers.push_back(index);
    } else if (batch != batch_inputs_.end()) {
      ref.batch_input = static_cast<int>(batch - batch_inputs_.begin());
      if (wanted_[ref.batch_input] && read_[ref.batch_input])
        throw kAddErrors.user("layer " + name,
                              "a second reader of an input whose gradient is wanted", "one reader",
                              input, "let the first one pass it on as an output");
      read_[ref.batch_input] = true;
      if (wanted_[ref.batch_input]) dataflow_.rows_layer = index;
    } else {
      throw kAddErrors.user("layer " + name, "unknown input",
                            "an earlier output or one of: " + join(batch_inputs_), input,
                            "write the value in an earlier layer");
    }
    refs.push_back(ref);
  }

  std::vector<int> values;
  for (const std::string& output : outputs) {
    const int value = static_cast<int>(dataflow_.values.size());
    dataflow_.values.push_back({.name = name + "." + output, .producer = index});
    latest_[output] = value;
    values.push_back(value);
  }

  resolve_ties(index, layer->weights());
  names_.push_back(name);
  known_names_.insert(name);
  layers_.push_back(std::move(layer));
  inputs_.push_back(std::move(refs));
  outputs_.push_back(std::move(values));
  dataflow_.num_layers = index + 1;
  return index;
}

void Sequential::resolve_ties(int layer, std::vector<WeightSpec> specs) {
  std::vector<bool> borrowed(specs.size(), false);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].tie.empty()) continue;
    const auto tie = std::find_if(dataflow_.ties.begin(), dataflow_.ties.end(),
                                  [&](const Tie& t) { return t.name == specs[i].tie; });
    if (tie == dataflow_.ties.end()) {
      dataflow_.ties.push_back({.name = specs[i].tie, .owner = layer, .users = {}});
      continue;
    }
    for (const WeightSpec& owned : layouts_[tie->owner].specs) {
      if (owned.tie == specs[i].tie && owned.shape != specs[i].shape)
        throw kAddErrors.user("layer " + specs[i].name, "tied weights of different shapes",
                              "the shape of " + owned.name, "another",
                              "give both the same shape or drop the tie '" + specs[i].tie + "'");
    }
    tie->users.push_back(layer);
    borrowed[i] = true;
  }
  layouts_.push_back(make_layout(std::move(specs), borrowed, split_.ranks, precision_));
}

void Sequential::align_weights(std::int64_t bytes) {
  for (LayerLayout& layout : layouts_) {
    std::vector<bool> borrowed;
    for (const WeightPlacement& place : layout.placements) borrowed.push_back(place.borrowed);
    layout = make_layout(std::move(layout.specs), borrowed, split_.ranks, precision_, bytes);
  }
}

std::vector<TensorSpec> Sequential::value_specs(const std::vector<TensorSpec>& batch_inputs) const {
  std::vector<TensorSpec> values(dataflow_.values.size());
  for (int layer = 0; layer < num_layers(); ++layer) {
    const std::vector<TensorSpec> made =
        layers_[layer]->outputs(input_specs(layer, batch_inputs, values));
    STRATA_CHECK_EQ(made.size(), outputs_[layer].size(), "nn.value_specs");
    for (std::size_t i = 0; i < made.size(); ++i) values[outputs_[layer][i]] = made[i];
  }
  return values;
}

std::vector<TensorSpec> Sequential::input_specs(int layer,
                                                const std::vector<TensorSpec>& batch_inputs,
                                                const std::vector<TensorSpec>& values) const {
  std::vector<TensorSpec> specs;
  for (const InputRef& ref : inputs_[layer])
    specs.push_back(ref.value >= 0 ? values[ref.value] : batch_inputs[ref.batch_input]);
  return specs;
}

std::int64_t Sequential::num_weights() const {
  std::int64_t count = 0;
  for (const LayerLayout& layout : layouts_) {
    for (std::size_t i = 0; i < layout.specs.size(); ++i)
      if (!layout.placements[i].borrowed && layout.specs[i].statistic == Statistic::kNone)
        count += TensorSpec{layout.specs[i].shape}.numel();
  }
  return count;
}

}  // namespace strata

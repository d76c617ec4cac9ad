// Reads models of other programs, and writes Hugging Face folders, for the tests of this folder.
//
//   parity_model make FOLDER model.kind=llama ...   random weights under their names
//   parity_model logits MODEL < tokens             a sample a line -> logits of its last position
//   parity_model states MODEL < tokens             the same of the states that logits are made of
//   parity_model generate MODEL COUNT < tokens     the likeliest tokens, on one line
//   parity_model int8|int4 MODEL WEIGHT            its rows as `--weights TYPE` rounds them
#include <ATen/core/grad_mode.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>

#include "strata/base/enum_names.h"
#include "strata/base/errors.h"
#include "strata/checkpoint/file_tensors.h"
#include "strata/checkpoint/quantised_rows.h"
#include "strata/checkpoint/reader.h"
#include "strata/checkpoint/safetensors.h"
#include "strata/models/hugging_face.h"
#include "strata/models/model.h"
#include "strata/models/quantised_model.h"
#include "strata/nn/graph/initialise.h"

namespace strata {
namespace {

// Weights of every layer, in the order of its specs.
using Weights = std::vector<std::vector<at::Tensor>>;

std::string their_path(const std::string& folder) { return folder + "/model.safetensors"; }

// The name by which a weight is stored: a tied one is the embedding's.
std::string stored_name(const Sequential& model, int layer, const WeightSpec& spec) {
  return spec.tie.empty() ? model.name(layer) + "." + spec.name : "embed.tokens.weight";
}

Weights read_weights(const Sequential& model, const CheckpointReader& reader,
                     const DecoderOptions& options) {
  Weights weights;
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    weights.emplace_back();
    for (const WeightSpec& spec : model.layout(layer).specs) {
      NamedState state{.name = stored_name(model, layer, spec), .shape = spec.shape};
      state.local = at::empty({state.numel()});
      state.runs = {{0, 0, state.numel()}};
      reader.read_runs(state, file_tensors({.decoder = &options}, state));
      weights.back().push_back(state.local.view(spec.shape));
    }
  }
  return weights;
}

// The outputs of the last layer: logits and states.
std::vector<at::Tensor> forward(const Sequential& model, const Weights& weights,
                                const at::Tensor& tokens) {
  std::vector<at::Tensor> values(model.dataflow().values.size());
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    std::vector<at::Tensor> inputs;
    for (const InputRef& ref : model.inputs(layer))
      inputs.push_back(ref.value >= 0 ? values[ref.value] : tokens);
    std::vector<at::Tensor> outputs =
        model.layer(layer).forward({.layer = layer}, weights[layer], inputs);
    if (layer == model.num_layers() - 1) return outputs;
    values[model.outputs(layer)[0]] = outputs[0];
  }
  return {};
}

// Also norms and biases, because their first values would hide errors.
void make(const std::string& folder, const std::vector<std::string>& fields) {
  DecoderOptions options;
  OptionSet set;
  describe(set, "model", options);
  for (const std::string& field : fields) set.set(field);
  const Sequential model = make_model(options);
  std::vector<NamedTensor> tensors;
  std::map<std::string, bool> written;
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    for (WeightSpec spec : model.layout(layer).specs) {
      const std::string name = stored_name(model, layer, spec);
      if (written[name]) continue;
      written[name] = true;
      spec.init = {Init::Kind::kNormal, 0.2};
      const at::Tensor weight = at::empty(spec.shape);
      initialise(weight, spec, model.name(layer), 1);
      for (const HuggingFaceTensor& theirs : hugging_face_tensors(options, name)) {
        const at::Tensor part = weight.narrow(0, theirs.row_begin, theirs.rows);
        tensors.push_back({theirs.name, (theirs.transposed ? part.t() : part).contiguous()});
      }
    }
  }
  std::filesystem::create_directories(folder);
  write_safetensors(their_path(folder), tensors);
  std::ofstream(folder + "/config.json") << hugging_face_config(options);
}

struct Loaded {
  DecoderOptions options;
  Sequential model;
  Weights weights;
};

Loaded load(const std::string& path) {
  const CheckpointReader reader = CheckpointReader::open(path);
  const DecoderOptions options = completed(reader.decoder());
  Sequential model = make_model(options, DecoderOutput::kLogits);
  Weights weights = read_weights(model, reader, options);
  return {options, std::move(model), std::move(weights)};
}

std::vector<std::int64_t> read_line(std::istream& in) {
  std::string line;
  std::getline(in, line);
  std::istringstream numbers(line);
  return {std::istream_iterator<std::int64_t>(numbers), {}};
}

void print_outputs(const std::string& folder, std::size_t output) {
  const Loaded loaded = load(folder);
  for (auto tokens = read_line(std::cin); !tokens.empty(); tokens = read_line(std::cin)) {
    const at::Tensor numbers =
        forward(loaded.model, loaded.weights, at::tensor(tokens).unsqueeze(0)).at(output);
    const float* z = numbers.const_data_ptr<float>();
    for (std::int64_t i = 0; i < numbers.numel(); ++i) std::printf("%.9g ", z[i]);
    std::printf("\n");
  }
}

void generate(const std::string& folder, int count) {
  const Loaded loaded = load(folder);
  std::vector<std::int64_t> tokens = read_line(std::cin);
  for (int i = 0; i < count; ++i) {
    const at::Tensor logits =
        forward(loaded.model, loaded.weights, at::tensor(tokens).unsqueeze(0)).at(0);
    tokens.push_back(at::argmax(logits).item<std::int64_t>());
    std::printf("%lld ", static_cast<long long>(tokens.back()));
  }
  std::printf("\n");
}

void print_rounded(kernels::QuantisedType type, const std::string& folder,
                   const std::string& name) {
  const CheckpointReader reader = CheckpointReader::open(folder);
  const DecoderOptions options = completed(reader.decoder());
  const Sequential model = make_model(options, DecoderOutput::kLogits);
  for (int layer = 0; layer < model.num_layers(); ++layer)
    for (const WeightSpec& spec : model.layout(layer).specs) {
      if (model.name(layer) + "." + spec.name != name) continue;
      NamedState weight{.name = name, .shape = spec.shape};
      weight.local = at::empty({weight.numel()});
      weight.runs = {{0, 0, weight.numel()}};
      read_rounded(type, {weight}, [&](const std::vector<NamedState>& states) {
        for (const NamedState& state : states)
          reader.read_runs(state, file_tensors({.decoder = &options}, state));
      });
      const float* value = weight.local.const_data_ptr<float>();
      for (std::int64_t i = 0; i < weight.numel(); ++i)
        std::printf("%.9g%c", value[i], (i + 1) % spec.shape.back() == 0 ? '\n' : ' ');
    }
}

int run(const std::vector<std::string>& arguments) {
  const at::NoGradGuard no_grad;
  if (arguments.size() >= 2 && arguments[0] == "make") {
    make(arguments[1], {arguments.begin() + 2, arguments.end()});
  } else if (arguments.size() == 2 && arguments[0] == "logits") {
    print_outputs(arguments[1], 0);
  } else if (arguments.size() == 2 && arguments[0] == "states") {
    print_outputs(arguments[1], 1);
  } else if (arguments.size() == 3 && arguments[0] == "generate") {
    generate(arguments[1], std::stoi(arguments[2]));
  } else if (arguments.size() == 3 && (arguments[0] == "int8" || arguments[0] == "int4")) {
    print_rounded(rounding_of(*value_named<WeightType>(arguments[0])), arguments[1], arguments[2]);
  } else {
    std::fprintf(stderr, "parity_model make|logits|states|generate|int8|int4 FOLDER ...\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace strata

int main(int count, char** arguments) {
  try {
    return strata::run({arguments + 1, arguments + count});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return strata::exit_code(error);
  }
}

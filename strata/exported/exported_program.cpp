// Every number of the JSON is checked before it is used: the file may come from anywhere.
#include "strata/exported/exported_program.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "strata/base/error_source.h"
#include "strata/base/errors.h"
#include "strata/base/random_access_file.h"
#include "strata/base/user_text.h"
#include "strata/device/account.h"
#include "strata/exported/batch_number.h"
#include "strata/exported/pt2_archive.h"
#include "strata/exported/python_layer.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr ErrorSource kReadErrors{"exported.read"};
constexpr int kSchemaMajor = 8;

at::MemoryFormat memory_format(std::int64_t number) {
  constexpr at::MemoryFormat kFormats[] = {
      at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast,
      at::MemoryFormat::ChannelsLast3d, at::MemoryFormat::Preserve};
  if (number < 1 || number > std::ssize(kFormats))
    throw kReadErrors.user("memory format", "unknown number", "1 to 4", std::to_string(number));
  return kFormats[number - 1];
}

}  // namespace

class ProgramReader {
 public:
  explicit ProgramReader(const std::string& path) {
    program_.archive_ = std::make_shared<Pt2Archive>(path);
  }

  ExportedProgram read() {
    const json model = program_.archive_->parse("models/model.json");
    const int major = model.at("schema_version").at("major");
    if (major != kSchemaMajor)
      throw kReadErrors.user("schema_version", "another version of the format",
                             std::to_string(kSchemaMajor), std::to_string(major),
                             "export the model with torch 2.13");
    const json& graph_module = model.at("graph_module");
    const json& graph = graph_module.at("graph");
    read_inputs(graph_module.at("signature"), graph);
    if (symbol_.empty())
      throw kReadErrors.user("inputs", "the model has no input", "at least one tensor", "none",
                             "export a model with an input");
    read_numbers(graph);
    for (const auto& [name, meta] : graph.at("tensor_values").items()) read_shape(name, meta);
    for (const json& node : graph.at("nodes")) read_node(node);
    for (const json& output : graph_module.at("signature").at("output_specs")) read_output(output);
    check_values();
    return std::move(program_);
  }

 private:
  void read_inputs(const json& signature, const json& graph) {
    for (const json& spec : signature.at("input_specs")) {
      if (spec.contains("parameter")) {
        const json& of = spec["parameter"];
        const std::string name = of.at("arg").at("name");
        const bool trained = graph.at("tensor_values").at(name).value("requires_grad", true);
        add_input(name, trained ? GraphSource::kParameter : GraphSource::kFrozen,
                  of.at("parameter_name"));
      } else if (spec.contains("buffer")) {
        const json& of = spec["buffer"];
        add_input(of.at("arg").at("name"), GraphSource::kBuffer, of.at("buffer_name"));
      } else if (spec.contains("tensor_constant")) {
        const json& of = spec["tensor_constant"];
        add_input(of.at("arg").at("name"), GraphSource::kBuffer, of.at("tensor_constant_name"));
      } else if (spec.contains("user_input") &&
                 spec["user_input"].at("arg").contains("as_tensor")) {
        const std::string name = spec["user_input"]["arg"]["as_tensor"].at("name");
        add_input(name, GraphSource::kInput, "");
        find_batch(name, graph.at("tensor_values").at(name).at("sizes"));
      } else {
        throw kReadErrors.user("inputs", "an input that is no tensor", "tensors",
                               spec.dump().substr(0, 80), "make it a constant of the model");
      }
    }
  }

  void add_input(const std::string& name, GraphSource source, const std::string& target) {
    if (source != GraphSource::kInput && !program_.archive_->find(target))
      throw kReadErrors.user(target, "the archive does not have this tensor", "its bytes", "none");
    program_.inputs_.push_back({.name = name, .source = source, .target = target});
  }

  // The first dimension of an input counts samples.
  void find_batch(const std::string& name, const json& sizes) {
    if (!sizes.empty() && sizes[0].contains("as_expr")) {
      const std::optional<BatchNumber> number =
          read_batch_number(sizes[0]["as_expr"].at("expr_str"), symbol_);
      if (number && *number == BatchNumber{.per_sample = 1}) return;
    }
    throw kReadErrors.user(name, "the number of samples is fixed",
                           "a first dimension of any size, the same of all inputs",
                           sizes.empty() ? "a single number" : sizes[0].dump(),
                           "export with dynamic_shapes={0: torch.export.Dim(\"batch\", min=2)} for "
                           "each input");
  }

  BatchNumber number(const json& size, const std::string& where) {
    if (size.contains("as_int")) return {.constant = size["as_int"]};
    if (size.contains("as_name")) {
      const auto found = numbers_.find(size["as_name"].get<std::string>());
      if (found != numbers_.end()) return found->second;
    }
    if (size.contains("as_expr"))
      if (const auto read = read_batch_number(size["as_expr"].at("expr_str"), symbol_))
        return *read;
    throw kReadErrors.user(where, "a size that does not follow from the number of samples",
                           "numbers, and multiples of the samples", size.dump().substr(0, 120),
                           "leave only the first dimension of the inputs dynamic");
  }

  void read_numbers(const json& graph) {
    for (const auto& [name, value] : graph.at("sym_int_values").items())
      numbers_[name] = number(value, name);
  }

  void read_shape(const std::string& name, const json& meta) {
    GraphShape shape{.sizes = {}, .dtype = scalar_type_of(meta.at("dtype"))};
    for (const json& size : meta.at("sizes")) shape.sizes.push_back(number(size, name));
    program_.shapes_[name] = std::move(shape);
  }

  // A part of the model under torch.no_grad() or enable_grad() is a graph within the graph.
  void read_nested(const json& node) {
    const json& inputs = node.at("inputs");
    const bool has_gradient = inputs.at(0).at("arg").at("as_bool");
    json graph = inputs.at(1).at("arg").at("as_graph").at("graph");
    std::map<std::string, std::string> names;
    const std::string prefix = "nested" + std::to_string(nested_++) + ".";
    for (const auto& [name, meta] : graph.at("tensor_values").items()) names[name] = prefix + name;
    for (std::size_t i = 0; i < graph.at("inputs").size(); ++i)
      if (const json& input = graph["inputs"][i]; input.contains("as_tensor"))
        names[input["as_tensor"].at("name")] =
            inputs.at(i + 2).at("arg").at("as_tensor").at("name");
    read_numbers(graph);
    for (const auto& [name, meta] : graph.at("tensor_values").items())
      if (names.at(name).starts_with(prefix)) read_shape(names.at(name), meta);
    rename(graph, names);
    for (const json& each : graph.at("nodes")) read_node(each);
    const json& outputs = graph.at("outputs");
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const GraphTensor result{outputs[i].at("as_tensor").at("name")};
      GraphNode end{.op = has_gradient ? "aten::alias" : "aten::detach",
                    .arguments = {{"self", result}},
                    .outputs = {node.at("outputs").at(i).at("as_tensor").at("name")}};
      if (!program_.nodes_.empty()) end.module = program_.nodes_.back().module;
      program_.nodes_.push_back(std::move(end));
    }
  }

  // Only references to values have a name and nothing else.
  static void rename(json& part, const std::map<std::string, std::string>& names) {
    if (part.is_object() && part.size() == 1 && part.contains("name")) {
      const auto found = names.find(part["name"].get<std::string>());
      if (found != names.end()) part["name"] = found->second;
    } else if (part.is_structured()) {
      for (json& each : part) rename(each, names);
    }
  }

  void read_node(const json& node) {
    GraphNode read;
    const std::string target = node.at("target");
    if (target == "torch.ops.higher_order.wrap_with_set_grad_enabled") return read_nested(node);
    const json& metadata = node.at("metadata");
    read.module = read_modules(metadata.value("nn_module_stack", ""));
    read.line = last_line(metadata.value("stack_trace", ""));
    bool has_tensor = false;
    for (const json& output : node.at("outputs")) {
      if (output.contains("as_tensor")) {
        read.outputs.push_back(output["as_tensor"].at("name"));
        has_tensor = true;
      } else if (output.contains("as_tensors")) {
        for (const json& each : output["as_tensors"]) read.outputs.push_back(each.at("name"));
        read.returns_list = has_tensor = true;
      } else {
        read.outputs.emplace_back();
      }
    }
    if (!has_tensor) return require_no_effect(node, target, read.line);
    constexpr std::string_view kPrefix = "torch.ops.";
    const std::vector<std::string> parts =
        split(target.substr(std::min(target.size(), kPrefix.size())));
    if (!target.starts_with(kPrefix) || parts.size() != 3 ||
        (parts[0] != "aten" && parts[0] + "::" + parts[1] != kPythonLayer))
      throw kReadErrors.user(read.line, "a layer cannot run " + target, "operators of ATen", target,
                             "write this part of the model with PyTorch's operators, or name its "
                             "module in python_layers of strata.Pipeline");
    read.op = parts[0] + "::" + parts[1];
    read.overload = parts[2] == "default" ? "" : parts[2];
    for (const json& input : node.at("inputs"))
      read.arguments.emplace_back(input.at("name"), argument(input.at("arg"), read.line));
    program_.nodes_.push_back(std::move(read));
  }

  // Sizes are in read_numbers().
  static void require_no_effect(const json& node, const std::string& target,
                                const std::string& line) {
    const bool is_size = !node.at("outputs").empty();
    const bool is_assertion = target.find("_assert") != std::string::npos ||
                              target.find("sym_constrain_range") != std::string::npos;
    if (!is_size && !is_assertion)
      throw kReadErrors.user(line, "a layer cannot run " + target, "operators that return values",
                             "one that only changes values", "return new values");
  }

  static std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> parts(1);
    for (const char c : text)
      if (c == '.')
        parts.emplace_back();
      else
        parts.back() += c;
    return parts;
  }

  // "L__self__,,Type;L__self__0,0,Type": the innermost path; enters all types.
  std::string read_modules(const std::string& stack) {
    std::string path;
    std::size_t begin = 0;
    while (begin < stack.size()) {
      const std::size_t end = std::min(stack.find(';', begin), stack.size());
      const std::string entry = stack.substr(begin, end - begin);
      begin = end + 1;
      const std::size_t first = entry.find(','), last = entry.rfind(',');
      if (first == std::string::npos || last == first) continue;
      const std::string name = entry.substr(first + 1, last - first - 1);
      if (name.find('<') != std::string::npos || name.find("hook") != std::string::npos) continue;
      path = name;
      program_.modules_[path] = entry.substr(last + 1);
    }
    return path;
  }

  static std::string last_line(const std::string& trace) {
    const std::size_t begin = trace.rfind("File \"");
    if (begin == std::string::npos) return "";
    return trace.substr(begin, trace.find('\n', begin) - begin);
  }

  GraphArgument argument(const json& value, const std::string& line) {
    if (!value.is_object() || value.empty())
      throw kReadErrors.user(line, "an argument without a kind", "one of the format's kinds",
                             "none");
    const std::string kind = value.begin().key();
    const json& of = value.begin().value();
    if (kind == "as_none") return GraphNone{};
    if (kind == "as_tensor") return GraphTensor{of.at("name")};
    if (kind == "as_tensors" || kind == "as_optional_tensors") {
      GraphTensors tensors;
      for (const json& each : of) {
        const json& tensor = each.contains("as_tensor") ? each["as_tensor"] : each;
        tensors.push_back({tensor.value("name", "")});
      }
      return tensors;
    }
    if (kind == "as_bool") return of.get<bool>();
    if (kind == "as_bools") return of.get<std::vector<bool>>();
    if (kind == "as_float") return of.get<double>();
    if (kind == "as_floats") return of.get<std::vector<double>>();
    if (kind == "as_string") return of.get<std::string>();
    if (kind == "as_int") return BatchNumber{.constant = of};
    if (kind == "as_sym_int") return number(of, line);
    if (kind == "as_ints" || kind == "as_sym_ints") {
      GraphNumbers numbers;
      for (const json& each : of)
        numbers.push_back(each.is_number() ? BatchNumber{.constant = each} : number(each, line));
      return numbers;
    }
    if (kind == "as_scalar_type") return scalar_type_of(of);
    if (kind == "as_memory_format") return memory_format(of);
    if (kind == "as_layout") return GraphNone{};  // only strided tensors exist here
    if (kind == "as_device") return GraphDevice{};
    throw kReadErrors.user(line, "a layer cannot have an argument of this kind",
                           "tensors and numbers", kind,
                           "write this part of the model with fixed values");
  }

  void read_output(const json& spec) {
    if (spec.contains("buffer_mutation")) {
      const std::string buffer = spec["buffer_mutation"].at("buffer_name");
      if (buffer.ends_with("num_batches_tracked")) return;
      throw kReadErrors.user(buffer, "the graph changes a buffer of the model",
                             "buffers that stay as they are", "a change",
                             "export the model without decompositions");
    }
    if (!spec.contains("user_output") || !spec["user_output"].at("arg").contains("as_tensor"))
      throw kReadErrors.user("outputs", "an output that is no tensor", "tensors",
                             spec.dump().substr(0, 80), "return only tensors");
    program_.outputs_.push_back(spec["user_output"]["arg"]["as_tensor"].at("name"));
  }

  // Each value is made before it is used.
  void check_values() const {
    std::set<std::string> made;
    for (const GraphInput& input : program_.inputs_) made.insert(input.name);
    const auto require = [&](const std::string& name, const std::string& line) {
      if (!name.empty() && !made.contains(name))
        throw kReadErrors.user(line.empty() ? name : line,
                               "the graph uses a value before it is made",
                               "values in the order of their use", name);
    };
    for (const GraphNode& node : program_.nodes_) {
      for (const auto& [name, argument] : node.arguments) {
        if (const auto* tensor = std::get_if<GraphTensor>(&argument))
          require(tensor->name, node.line);
        if (const auto* tensors = std::get_if<GraphTensors>(&argument))
          for (const GraphTensor& tensor : *tensors) require(tensor.name, node.line);
      }
      for (const std::string& output : node.outputs)
        if (!output.empty() && !made.insert(output).second)
          throw kReadErrors.user(node.line, "two nodes make one value", "distinct names", output);
    }
    for (const std::string& output : program_.outputs_) require(output, "");
    for (const std::string& name : made) program_.shape(name);
    for (const GraphInput& input : program_.inputs_)
      if (input.source != GraphSource::kInput) check_tensor(input);
  }

  // The shape in the graph and that of the bytes.
  void check_tensor(const GraphInput& input) const {
    const GraphShape& shape = program_.shape(input.name);
    const TensorPlace& place = *program_.archive_->find(input.target);
    const bool same = std::ranges::equal(shape.sizes, place.sizes,
                                         [](const BatchNumber& number, std::int64_t size) {
                                           return number == BatchNumber{.constant = size};
                                         });
    if (!same || shape.dtype != place.dtype)
      throw kReadErrors.user(input.target, "the graph and the archive disagree about this tensor",
                             "one shape and type", "two", "export the model again");
    if (input.source == GraphSource::kParameter && shape.dtype != at::kFloat)
      throw kReadErrors.user(input.target, "weights are trained in fp32", "float32",
                             c10::toString(shape.dtype), "export model.float()");
  }

  ExportedProgram program_;
  int nested_ = 0;      // graphs within the graph
  std::string symbol_;  // of the samples
  std::map<std::string, BatchNumber> numbers_;
};

ExportedProgram ExportedProgram::read(const std::string& path) {
  // Refuses pipes, devices and folders, which the reader of archives would wait for or misread.
  RandomAccessFile::open(
      path, {.operation = kReadErrors.operation, .fix = "name a .pt2 file of torch.export.save()"});
  const UnchargedScope reading;
  return reading_model(path, [&] { return ProgramReader(path).read(); });
}

UserError damaged_model(const std::string& path, const std::exception& error) {
  return kReadErrors.user(path, "this is no exported model, or it is damaged",
                          "a .pt2 file of torch.export.save()", excerpt(error.what()),
                          "export the model again");
}

TensorSpec GraphShape::at(std::int64_t samples) const {
  TensorSpec spec{.shape = {}, .dtype = dtype};
  for (const BatchNumber& size : sizes) spec.shape.push_back(size.at(samples));
  return spec;
}

bool GraphShape::begins_with_samples() const {
  return !sizes.empty() && sizes[0] == BatchNumber{.per_sample = 1};
}

const GraphShape& ExportedProgram::shape(const std::string& value) const {
  const auto found = shapes_.find(value);
  if (found == shapes_.end())
    throw kReadErrors.user(value, "the graph does not say the shape of this value", "a shape",
                           "none", "export the model again");
  return found->second;
}

at::Tensor ExportedProgram::tensor(const std::string& target) const {
  const TensorPlace* place = archive_->find(target);
  if (!place)
    throw kReadErrors.user(target, "the archive does not have this tensor", "its bytes", "none");
  return archive_->tensor(*place);
}

}  // namespace strata

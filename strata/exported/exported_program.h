/// Reads a model that torch.export.save() wrote: a graph of ATen operators and its weights.
///
///     program = torch.export.export(model, (x,), dynamic_shapes=({0: Dim("batch", min=2)},))
///     torch.export.save(program, "model.pt2")
///
/// The file is an archive with the graph as JSON and the tensors as bytes (pt2_archive.h). Export
/// it in training mode: the operators are those above autograd, not decomposed.
///
/// Source   torch/_export/serde/schema.py, schema version 8 (torch 2.13).
/// Errors   UserError `[exported.read]`: no such file, another format, a part that contradicts
///          another, a feature that a layer cannot have; with the user's line of code where known.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <variant>
#include <vector>

#include "strata/base/errors.h"
#include "strata/nn/graph/layer.h"

namespace strata {

class Pt2Archive;

/// A number that may depend on the samples of the batch: per_sample * samples + constant.
struct BatchNumber {
  std::int64_t per_sample = 0, constant = 0;
  std::int64_t at(std::int64_t samples) const { return per_sample * samples + constant; }
  bool operator==(const BatchNumber&) const = default;
};

/// An argument of an operator.
struct GraphNone {};
struct GraphTensor {
  std::string name;  ///< "" in a list: none
};
using GraphTensors = std::vector<GraphTensor>;
struct GraphDevice {};  ///< that of the layer's inputs
using GraphNumbers = std::vector<BatchNumber>;
using GraphArgument = std::variant<GraphNone, GraphTensor, GraphTensors, GraphDevice, bool,
                                   std::vector<bool>, double, std::vector<double>, BatchNumber,
                                   GraphNumbers, at::ScalarType, at::MemoryFormat, std::string>;

struct GraphNode {
  std::string op, overload;                                      ///< "aten::linear", ""
  std::vector<std::pair<std::string, GraphArgument>> arguments;  ///< by the schema's names
  std::vector<std::string> outputs;                              ///< of a list, too; "": no tensor
  bool returns_list = false;
  std::string module;  ///< the path of the module that computes it: "encoder.0.fc"
  std::string line;    ///< "File "model.py", line 12, in forward"
};

/// The types of modules, by path: "torch.nn.modules.container.Sequential".
using GraphModules = std::map<std::string, std::string>;

enum class GraphSource {
  kParameter,
  kFrozen,  ///< a parameter that is not trained: requires_grad=False
  kBuffer,  ///< or a constant
  kInput,
};

struct GraphInput {
  std::string name;  ///< of the value
  GraphSource source = GraphSource::kInput;
  std::string target;  ///< unless it is an input: in state_dict(): "encoder.0.fc.weight"
};

/// The shape of a value.
struct GraphShape {
  std::vector<BatchNumber> sizes;
  at::ScalarType dtype = at::kFloat;

  TensorSpec at(std::int64_t samples) const;
  /// The first dimension is the samples.
  bool begins_with_samples() const;
};

class ExportedProgram {
 public:
  static ExportedProgram read(const std::string& path);

  const std::vector<GraphInput>& inputs() const { return inputs_; }
  const std::vector<std::string>& outputs() const { return outputs_; }
  const std::vector<GraphNode>& nodes() const { return nodes_; }
  const GraphModules& modules() const { return modules_; }
  const GraphShape& shape(const std::string& value) const;

  /// Declares a value that a rewritten graph has in addition, with the shape of another.
  void add_value(const std::string& name, const std::string& like) { shapes_[name] = shape(like); }

  /// Copies a parameter or buffer, by its target, from the file.
  at::Tensor tensor(const std::string& target) const;

 private:
  friend class ProgramReader;

  std::shared_ptr<Pt2Archive> archive_;
  std::vector<GraphInput> inputs_;
  std::vector<std::string> outputs_;
  std::vector<GraphNode> nodes_;
  GraphModules modules_;
  std::map<std::string, GraphShape> shapes_;
};

/// "This is no exported model, or it is damaged", with what a reader of it threw.
UserError damaged_model(const std::string& path, const std::exception& error);

/// Calls f, which trusts the file: what it throws, but our own errors and a lack of memory, becomes
/// damaged_model().
template <typename F>
auto reading_model(const std::string& path, F f) {
  try {
    return f();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw damaged_model(path, error);
  }
}

}  // namespace strata

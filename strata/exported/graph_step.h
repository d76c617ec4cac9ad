/// Runs one node of a graph in a layer: an operator as it is, or random operators, attention with
/// dropout and batch norm by this project's rules (random_step.h).
///
/// Errors  UserError `[exported.read]`: batch norm of one value. As OperatorCall and random_step().
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "strata/exported/attention_dropout.h"
#include "strata/exported/operator_call.h"
#include "strata/exported/own_step.h"
#include "strata/exported/random_step.h"

namespace strata {

/// What a step needs of a run of the layer.
struct StepRun {
  std::vector<at::Tensor>& values;  ///< by slot
  const ForwardContext& context;
  std::int64_t samples = 0;
  at::Device device;
};

struct DrawnStep {
  int x, y;
  RandomStep random = {};
  void run(const StepRun& run) const;
};

struct AttentionStep {
  int q, k, v, mask, y;  ///< mask: -1: none
  bool causal = false, shares_keys = false;
  std::optional<double> scale = {};
  Dropout dropout = {};
  void run(const StepRun& run) const;
};

/// Of a micro-batch, whose moments go to the statistics.
struct BatchNormStep {
  int x, y, gain, bias, mean, variance;  ///< gain, bias: -1: none
  double epsilon = 0;
  std::string line = {};
  void run(const StepRun& run) const;
};

struct GraphStep {
  std::variant<OperatorCall, OwnStep, DrawnStep, AttentionStep, BatchNormStep> what;
  std::vector<int> reads, writes;   ///< slots; -1: none
  std::string line;                 ///< of the user's code
  std::string signature;            ///< operator, slots and numbers
  std::vector<int> last_uses = {};  ///< values that no later step reads
};

/// `slot_of`: the place of a value. `dropouts`: how many uses of dropout the layer has so far.
GraphStep make_step(const ExportedProgram& program, const GraphNode& node,
                    const std::function<int(const std::string&)>& slot_of, int& dropouts);
/// The step of a node that Strata's own operations compute.
GraphStep make_step(const GraphNode& node, const OwnStep& own);
void run_step(const GraphStep& step, const StepRun& run);

/// Batch norm that normalises by the micro-batch. One that is frozen is an operator like others,
/// whose statistics are constants.
bool moves_statistics(const GraphNode& node);

/// The name of the value that is this argument; "": it is none.
std::string value_named(const GraphNode& node, const std::string& argument);
/// The argument, a flag; false: it is left out.
bool flag_named(const GraphNode& node, const std::string& argument);
/// The argument, a number that does not depend on the samples.
double real_named(const GraphNode& node, const std::string& argument);

}  // namespace strata

/// Defines what a run learns: a model, data, limits of the mesh, an evaluation, a section of the
/// recipe, and additions to the report. The code that plans, trains, saves and reports uses tasks
/// only through this interface.
///
/// A new kind of task is a folder with a class derived from Task and one line in
/// task/kinds/kinds.cpp.
///
/// Threads  const methods, any thread.
/// Errors   UserError: fields that contradict each other; what makers of models and openers of data
///          refuse, with the place in the recipe.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "strata/base/options.h"
#include "strata/checkpoint/model_description.h"
#include "strata/layout/costs.h"
#include "strata/models/decoder_options.h"
#include "strata/nn/graph/sequential.h"
#include "strata/plan/machine_profile.h"
#include "strata/plan/search/mesh_check.h"
#include "strata/task/embedding_table.h"
#include "strata/task/recipe.h"
#include "strata/task/task_data.h"
#include "strata/task/task_run.h"

namespace strata {

class CheckpointReader;
struct ReportInput;

/// What a plan shows for a task in addition to the plan of its model.
struct PlanAppendix {
  std::string text;  ///< for a terminal; empty: nothing
  std::string key;   ///< its member in the plan's JSON
  std::string json;  ///< a JSON value
};

class Task {
 public:
  virtual ~Task() = default;

  // The recipe.

  /// Adds the task's own fields; `set` keeps pointers into this object.
  virtual void describe(OptionSet& set) = 0;
  /// Changes defaults of shared fields.
  virtual void set_defaults(Recipe&) const {}
  /// Fills in shared fields that the recipe leaves out and that follow from others.
  virtual void complete(Recipe&, const OptionSet&) const {}
  /// Refuses contradictory fields before they are used.
  virtual void check(const Recipe&, const FieldPlace&) const {}
  /// Makes the model of a checkpoint the default model: --from and --resume.
  virtual void take_model(const CheckpointReader&) {}
  /// The same from the effective recipe of a run that keeps its model on a disk.
  virtual void take_model(const std::string&) {}

  // The model.

  virtual std::string title() const = 0;  ///< "Llama", "DLRM"
  /// The model of one tensor-parallel rank.
  virtual Sequential model(const Recipe& recipe, TensorSplit split) const = 0;
  /// The specs of the model's inputs for so many samples.
  virtual std::vector<TensorSpec> batch_inputs(std::int64_t samples) const = 0;
  /// Tokens of a sample; 0: steps are counted in samples.
  virtual std::int64_t sample_tokens() const { return 0; }
  /// By default the limits of the mini-batch and of the model's layers; samples have no tokens that
  /// ranks divide.
  virtual MeshLimits mesh_limits(const Recipe& recipe) const;
  virtual CheckpointModel checkpoint_model() const = 0;
  /// As CheckpointOptions::tokenizer; empty: the task has no text.
  virtual std::string tokenizer() const { return ""; }

  // The plan.

  /// The cost of reading samples and embeddings in addition to a step's layers, with assumed rates.
  virtual RowsCost rows_cost(const Recipe&, const MachineProfile&) const { return {}; }
  /// The same, measured here. `data`: the task's, if it is already open.
  virtual RowsCost measured_rows_cost(const Recipe&, const MachineProfile&, const TaskData*) const {
    return {};
  }
  /// Refuses decisions of the plan that the task cannot carry out.
  virtual void check_plan(const StepDecisions&, int /*processes*/) const {}
  /// The metrics of a validation in addition to its loss, in which a target may be given.
  virtual std::vector<std::string> validation_metrics() const { return {}; }
  /// How many different batch sizes an evaluation uses; each needs buffers.
  virtual int evaluation_shapes(const Recipe&) const { return 0; }
  /// Whether weights and states may live on a disk.
  virtual bool may_use_disk() const { return true; }
  /// Whether the process holds memory that the plan does not count.
  virtual bool has_uncounted_memory() const { return false; }
  /// The field with the depth of the model; empty: none.
  virtual std::string depth_field() const { return ""; }
  virtual PlanAppendix plan_appendix(const Recipe&) const { return {}; }

  // The run.

  /// Whether a caller may bring mini-batches in place of the data (session/session.h).
  virtual bool takes_tensors() const { return true; }
  /// Makes a mini-batch of a caller's tensors on the host, [samples, ...]: the model's inputs, then
  /// the targets. UserError: other numbers, types or sizes (tensor_batch.h).
  virtual MiniBatch mini_batch(std::vector<at::Tensor> tensors) const;

  /// Opens the data. `resume`: the checkpoint, or its folder, that the run resumes from; empty:
  /// none.
  virtual std::unique_ptr<TaskData> open(const Recipe& recipe, const std::string& resume) const = 0;
  /// Makes what the ranks of a run share. `data`: from open(); it and the recipe outlive the run.
  /// By default a MeanLossRun (mean_loss_run.h).
  virtual std::unique_ptr<TaskRun> start(const Recipe& recipe, const StepPlan& steps,
                                         const TaskData& data, const TaskStart& start) const;
  /// Collective. Gives the model its first weights: by default drawn by counter.
  virtual void initialise(Trainer& trainer) const;
  /// What those are: "random, of train.seed 1".
  virtual std::string first_weights(const Recipe& recipe) const;
  /// Refuses to use first weights without their run: --from alone.
  virtual void check_first_weights(const std::string& /*from*/) const {}
  /// Refuses to resume with another task than `before`, which the checkpoint at `path` was trained
  /// with. `recipe_before`: its effective recipe.
  virtual void check_resume(const Recipe&, const Task& /*before*/, const Recipe& /*recipe_before*/,
                            const std::string& /*path*/) const {}
  /// Refuses inspections that the model or the data do not support.
  virtual void check_inspection(const InspectionRequest& request, const TaskData& data) const;
  /// Refuses to evaluate the checkpoint at `path` without its run.
  virtual void check_evaluation(const std::string& /*path*/) const {}
  /// The embeddings of a checkpoint, or of the newest in a folder. UserError: the model has none.
  virtual std::vector<EmbeddingTable> saved_embeddings(const Recipe& recipe,
                                                       const std::string& checkpoint) const;
  /// The task for a step that is replayed for a comparison, which must not change state that other
  /// runs train. Null: this task. `resume` as in open().
  virtual std::shared_ptr<const Task> replayed(const std::string& /*resume*/) const {
    return nullptr;
  }

  // The report.

  /// The file of the samples, or the name of their generator.
  virtual std::string data_source() const { return ""; }
  /// Adds tables that only this task's report has.
  virtual void add_to_report(ReportInput&) const {}
};

}  // namespace strata

// strata._core.Session: session/session.h with tensors by DLPack. strata/pipeline.py is its user.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <mutex>
#include <type_traits>

#include "strata/base/error_source.h"
#include "strata/cli/report_origin.h"
#include "strata/python/calls.h"
#include "strata/python/module.h"
#include "strata/python/plans.h"
#include "strata/python/tensors.h"
#include "strata/run/recipe_file.h"
#include "strata/run/training_start.h"
#include "strata/session/session.h"

namespace strata {
namespace nb = nanobind;
namespace {

using Capsules = std::vector<nb::capsule>;

// The run of a model's file that each process has written to a folder of its own. `weights`: a
// digest that is equal if the processes have equal weights.
ResolvedRun run_of_file(const std::string& recipe, const std::vector<std::string>& overrides,
                        const std::string& folder, const std::string& weights,
                        const std::string& resume) {
  ResolvedRun run =
      resolve(parse_recipe(recipe, "strata.Pipeline", overrides, [&](Recipe& defaults, Task&) {
        defaults.train.resumed_micro_batch = resumed_micro_batch(resume);
      }));
  for (std::size_t at; (at = run.fingerprint.find(folder)) != std::string::npos;)
    run.fingerprint.erase(at, folder.size());
  run.fingerprint += "\nweights: " + weights;
  return run;
}

// Sessions are closed before the interpreter ends, so the ranks never outlive it. Calls release the
// interpreter's lock, so a second thread may call; it is refused.
class PythonSession {
  // Calls f, if no other thread is in a call.
  template <typename F>
  std::invoke_result_t<F> alone(F f) {
    return unlocked([&]() -> std::invoke_result_t<F> {
      const std::unique_lock lock(in_use_, std::try_to_lock);
      if (!lock) {
        constexpr ErrorSource kErrors{"python.session", "make the calls from one thread"};
        throw kErrors.user("the pipeline", "another thread uses it", "one call at a time", "two");
      }
      return f();
    });
  }

 public:
  PythonSession(const std::string& recipe, const std::vector<std::string>& overrides,
                const std::string& folder, const std::string& weights, const std::string& resume)
      : session_(unlocked([&] {
          return std::make_unique<Session>(
              run_of_file(recipe, overrides, folder, weights, resume),
              SessionOptions{.resume = resume, .while_waiting = raise_signals});
        })) {}
  ~PythonSession() {
    unlocked([&] { session_.reset(); });
  }

  // The line of metrics; empty in other processes than that of rank 0.
  std::string step(const Capsules& tensors, std::optional<double> learning_rate) {
    std::vector<at::Tensor> brought = tensors_of(tensors);
    return alone([&] {
      const auto record = session_->step(session_->mini_batch(std::move(brought)), learning_rate);
      return record ? to_metrics_line(*record) : "";
    });
  }

  std::map<std::string, double> evaluate(const std::vector<Capsules>& batches) {
    std::vector<std::vector<at::Tensor>> brought;
    for (const Capsules& batch : batches) brought.push_back(tensors_of(batch));
    return alone([&] {
      std::vector<MiniBatch> made;
      for (std::vector<at::Tensor>& batch : brought)
        made.push_back(session_->mini_batch(std::move(batch)));
      const Evaluation evaluation = session_->evaluate(std::move(made));
      std::map<std::string, double> numbers(evaluation.metrics.begin(), evaluation.metrics.end());
      numbers["loss"] = evaluation.loss;
      return numbers;
    });
  }

  nb::dict weights() {
    const auto weights = alone([&] { return session_->weights(); });
    nb::dict capsules;
    for (const auto& [name, tensor] : weights) capsules[name.c_str()] = capsule_of(tensor);
    return capsules;
  }

  void load_weights(const std::map<std::string, nb::capsule>& capsules) {
    std::map<std::string, at::Tensor> weights;
    for (const auto& [name, capsule] : capsules) weights[name] = tensor_of(capsule);
    alone([&] { session_->load_weights(weights); });
  }

  std::string save(const std::string& folder) {
    return alone([&] { return session_->save(folder); });
  }

  // Empty in other processes than that of rank 0.
  std::string report() {
    return alone([&]() -> std::string {
      const TrainingResult result = session_->result();
      if (!session_->has_results()) return "";
      return run_report(session_->recipe(), session_->planned(), result, {},
                        report_origin(session_->recipe(), "Python"));
    });
  }

  PlanTexts plan() const {
    return unlocked([&] { return plan_texts(session_->recipe(), session_->planned()); });
  }

  std::int64_t steps_done() const { return session_->steps_done(); }
  std::string recipe() const { return session_->recipe().text; }

  void close() {
    alone([&] { session_->close(); });
  }

 private:
  std::unique_ptr<Session> session_;
  std::mutex in_use_;
};

}  // namespace

void add_sessions(nb::module_& module) {
  nb::class_<PythonSession>(module, "Session")
      .def(nb::init<const std::string&, const std::vector<std::string>&, const std::string&,
                    const std::string&, const std::string&>(),
           nb::arg("recipe"), nb::arg("overrides"), nb::arg("folder"), nb::arg("weights"),
           nb::arg("resume"))
      .def("step", &PythonSession::step, nb::arg("tensors"), nb::arg("learning_rate").none())
      .def("evaluate", &PythonSession::evaluate)
      .def("weights", &PythonSession::weights)
      .def("load_weights", &PythonSession::load_weights)
      .def("save", &PythonSession::save)
      .def("report", &PythonSession::report)
      .def("plan", &PythonSession::plan)
      .def("close", &PythonSession::close)
      .def_prop_ro("steps_done", &PythonSession::steps_done)
      .def_prop_ro("recipe", &PythonSession::recipe);
}

}  // namespace strata

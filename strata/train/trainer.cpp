#include "strata/train/trainer.h"

#include <ATen/ops/cat.h>

#include <algorithm>

#include "strata/base/errors.h"
#include "strata/model/initialise.h"
#include "strata/schedule/passes.h"
#include "strata/schedule/validator.h"

namespace strata {
namespace {

// Runs the program; an error says at which action.
void execute_located(const Program& program, Machine& machine, TraceLog& trace) {
  Execution execution(program, machine, &trace);
  const auto place = [&] {
    return "position " + std::to_string(execution.position()) + " \"" +
           to_string(program[execution.position()]) + "\"";
  };
  const auto located = [&](const Error& error) {
    ErrorText text = error.text();
    text.where = text.where.empty() ? place() : text.where + ", " + place();
    return text;
  };
  try {
    execution.advance();
  } catch (const UserError& error) {
    throw UserError(located(error));
  } catch (const SystemError& error) {
    throw SystemError(located(error));
  } catch (const InternalError& error) {
    throw InternalError(located(error));
  } catch (const std::exception& error) {
    throw InternalError({.operation = "train.step",
                         .where = place(),
                         .what = "an operator failed",
                         .got = error.what()});
  }
}

}  // namespace

Trainer::Trainer(const Sequence& model, TrainerOptions options, Group& group)
    : model_(model),
      options_(std::move(options)),
      group_(group),
      optimizer_(make_optimizer(options_.optimizer)),
      store_(device_medium()) {
  options_.recompute.resize(model.num_layers(), 0);
  std::vector<int> rank_of_stage(options_.partition.num_stages());
  for (int stage = 0; stage < options_.partition.num_stages(); ++stage)
    rank_of_stage[stage] = stage % group.size();

  const int num_slots = static_cast<int>(optimizer_->slot_names().size());
  std::map<std::string, at::Tensor> tied;  // tie -> the owner's bytes, if they are here
  for (int layer = 0; layer < model.num_layers(); ++layer) {
    if (rank_of_stage[options_.partition.stage_of(layer)] != group.rank()) continue;
    const LayerLayout& layout = model.layout(layer);
    std::vector<at::Tensor> shared(layout.specs.size());
    for (std::size_t i = 0; i < layout.specs.size(); ++i)
      if (layout.placements[i].borrowed && tied.contains(layout.specs[i].tie))
        shared[i] = tied.at(layout.specs[i].tie);
    store_.insert(layer, layout, shared, num_slots);
    const Lease lease = store_.acquire(layer);
    for (std::size_t i = 0; i < layout.specs.size(); ++i)
      if (!layout.specs[i].tie.empty() && !layout.placements[i].borrowed)
        tied[layout.specs[i].tie] = lease.weights()[i].detach();
  }
  machine_ = std::make_unique<StageMachine>(
      model,
      MachineOptions{.partition = options_.partition,
                     .rank_of_stage = std::move(rank_of_stage),
                     .recompute = options_.recompute,
                     .keep_intermediates = options_.keep_intermediates,
                     .seed = options_.seed,
                     .clip = options_.clip},
      store_, optimizer_.get(), group);
}

void Trainer::initialise() {
  for (const int layer : store_.layers()) {
    const Lease lease = store_.acquire(layer);
    const LayerLayout& layout = model_.layout(layer);
    for (std::size_t i = 0; i < layout.specs.size(); ++i)
      strata::initialise(lease.weights()[i].detach(), layout.specs[i], model_.name(layer),
                         options_.seed);
  }
}

const Schedule& Trainer::schedule(int micro_batches, bool training) {
  const auto key = std::pair(micro_batches, training);
  if (const auto known = schedules_.find(key); known != schedules_.end()) return known->second;
  const schedule::Shape shape{.ranks = group_.size(),
                              .micro_batches = micro_batches,
                              .virtual_stages = options_.virtual_stages};
  const std::string name = training ? options_.schedule : "forward";
  const Wiring& wiring = model_.wiring();
  schedule::LowerOptions lower{.update = training};
  if (training) lower.recompute = options_.recompute;
  Schedule lowered =
      schedule::lower(schedule::build(name, shape), wiring, options_.partition, lower);
  schedule::ValidateOptions validate{.backward = training};
  for (int rank = 0; training && rank < group_.size(); ++rank)
    validate.in_flight_bound.push_back(schedule::in_flight_bound(name, shape, rank));
  schedule::validate(lowered, wiring, options_.partition, validate);
  return schedules_.emplace(key, std::move(lowered)).first->second;
}

void Trainer::run(const MiniBatch& batch, double learning_rate, bool training, bool update) {
  if (batch.valid_tokens == 0) {
    throw UserError({.operation = "train.step",
                     .what = "no token of the mini-batch counts towards the loss",
                     .expected = "at least one target that isn't ignored",
                     .got = "0 of " + std::to_string(batch.samples) + " samples",
                     .fix = "check the targets of data.train"});
  }
  std::vector<MicroBatch> micro_batches = split(batch, options_.micro_batch);
  const Schedule& schedule = this->schedule(static_cast<int>(micro_batches.size()), training);
  Program program = schedule.programs[group_.rank()];
  if (training && !update) {  // stop behind the norm
    const auto norm = std::find_if(program.begin(), program.end(),
                                   [](const Action& a) { return a.op == Op::kReduceNorm; });
    program.erase(norm + 1, program.end());
  }
  machine_->begin(program, {.micro_batches = std::move(micro_batches),
                            .step = steps_done_,
                            .valid_tokens = batch.valid_tokens,
                            .learning_rate = learning_rate,
                            .training = training});
  execute_located(program, *machine_, trace_);
}

const StepOutcome& Trainer::step(const MiniBatch& batch, double learning_rate) {
  run(batch, learning_rate, /*training=*/true, /*update=*/true);
  ++steps_done_;
  return machine_->outcome();
}

const StepOutcome& Trainer::gradient_step(const MiniBatch& batch) {
  run(batch, 0, /*training=*/true, /*update=*/false);
  return machine_->outcome();
}

double Trainer::evaluate(const std::vector<MiniBatch>& batches) {
  double sum = 0, tokens = 0;
  for (const MiniBatch& batch : batches) {
    run(batch, 0, /*training=*/false, /*update=*/false);
    machine_->reduce_loss();
    sum += machine_->outcome().loss * static_cast<double>(batch.valid_tokens);
    tokens += static_cast<double>(batch.valid_tokens);
  }
  return sum / tokens;
}

at::Tensor Trainer::forward(const MiniBatch& batch) {
  run(batch, 0, /*training=*/false, /*update=*/false);
  if (!store_.contains(model_.num_layers() - 1)) return {};
  const auto count = (batch.samples + options_.micro_batch - 1) / options_.micro_batch;
  return at::cat(machine_->take_outputs(static_cast<int>(count)));
}

std::string Trainer::global_name(int layer, int weight) const {
  const WeightSpec& spec = model_.layout(layer).specs[weight];
  if (!model_.layout(layer).placements[weight].borrowed)
    return model_.name(layer) + "." + spec.name;
  for (const Tie& tie : model_.wiring().ties) {
    if (tie.name != spec.tie) continue;
    for (const WeightSpec& owned : model_.layout(tie.owner).specs)
      if (owned.tie == spec.tie) return model_.name(tie.owner) + "." + owned.name;
  }
  throw InternalError(
      {.operation = "train.global_name", .what = "a tie without owner", .got = spec.tie});
}

namespace {

// Calls f(layer, weight, buffers) for every weight of the store that is (not) borrowed.
template <typename F>
void for_each_weight(LayerStore& store, bool borrowed, F f) {
  for (const int layer : store.layers()) {
    const Lease lease = store.acquire(layer);
    const LayerBuffers& buffers = lease.buffers();
    for (std::size_t i = 0; i < buffers.layout->specs.size(); ++i)
      if (buffers.layout->placements[i].borrowed == borrowed)
        f(layer, static_cast<int>(i), buffers);
  }
}

}  // namespace

std::vector<NamedState> Trainer::weights() {
  std::vector<NamedState> states;
  for_each_weight(store_, false, [&](int layer, int i, const LayerBuffers& b) {
    states.push_back({global_name(layer, i), b.leaves[i].detach()});
  });
  return states;
}

std::vector<NamedState> Trainer::replicas() {
  std::vector<NamedState> states;
  for_each_weight(store_, true, [&](int layer, int i, const LayerBuffers& b) {
    states.push_back({global_name(layer, i), b.leaves[i].detach()});
  });
  return states;
}

std::vector<NamedState> Trainer::gradients() {
  std::vector<NamedState> states;
  for_each_weight(store_, false, [&](int layer, int i, const LayerBuffers& b) {
    states.push_back({global_name(layer, i), b.leaves[i].grad()});
  });
  return states;
}

std::vector<NamedState> Trainer::slots() {
  std::vector<NamedState> states;
  const std::vector<std::string> names = optimizer_->slot_names();
  for_each_weight(store_, false, [&](int layer, int i, const LayerBuffers& b) {
    const Placement& place = b.layout->placements[i];
    for (std::size_t slot = 0; slot < names.size(); ++slot)
      states.push_back(
          {global_name(layer, i) + "." + names[slot],
           b.slots[slot].narrow(0, place.offset, place.numel).view(b.layout->specs[i].shape)});
  });
  return states;
}

}  // namespace strata

// A recording repeats the device's work but not the host's. So all data that crosses a segment's
// border is a tensor at a fixed address or a number in the step's block. Values and gradients that
// wait in the tables are copied to their recorded addresses, and afterwards the tables are restored
// to their recorded state. A closure on a CPU follows the same rule: it reads the inputs of its
// recording, and its results are copied to the recorded addresses.
#include "strata/pipeline/recorded_machine.h"

#include <algorithm>
#include <utility>

#include "strata/base/enum_names.h"
#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr const char* kOperation = "pipeline.record";

bool same_place(const at::Tensor& a, const at::Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr() && a.sizes() == b.sizes() &&
         a.scalar_type() == b.scalar_type();
}

bool same_place(const MicroBatch& a, const MicroBatch& b) {
  return a.first_sample == b.first_sample &&
         std::ranges::equal(a.inputs, b.inputs, [](auto& x, auto& y) { return same_place(x, y); });
}

// Inputs that a recording cannot receive anew.
bool same_kind(const StepInputs& a, const StepInputs& b) {
  return a.training == b.training && a.updates == b.updates &&
         std::ranges::equal(a.micro_batches, b.micro_batches,
                            [](auto& x, auto& y) { return same_place(x, y); });
}

}  // namespace

const char* name_of(GraphMode mode) {
  using enum GraphMode;
  static constexpr EnumNames<GraphMode> kNames{{kAuto, "auto"}, {kOn, "on"}, {kOff, "off"}};
  return kNames[mode];
}

RecordedMachine::RecordedMachine(StageMachine& machine, StepPlan plan, Device device,
                                 GraphOptions options)
    : machine_(machine), plan_(std::move(plan)), device_(device), options_(std::move(options)) {
  // A closure costs a host as much as the actions.
  const bool gains = options_.mode == GraphMode::kOn || device.kind != DeviceKind::kCpu ||
                     options_.on_every_device;
  records_ = options_.mode != GraphMode::kOff && gains && !options_.shares_device;
  if (!options_.shares_device || options_.mode == GraphMode::kOff || records_) return;
  if (options_.mode == GraphMode::kOn) {
    throw UserError({.operation = kOperation,
                     .where = "train.graph",
                     .what = "ranks that share a device would record one another",
                     .expected = "a device for each rank",
                     .got = "several ranks on " + device.name(),
                     .fix = "set train.graph=auto"});
  }
  if (gains && options_.report)
    options_.report("steps are not recorded: ranks share " + device.name());
}

RecordedMachine::Recorded& RecordedMachine::find(const Program& program, const StepInputs& inputs) {
  const auto known = std::ranges::find_if(programs_, [&](const Recorded& recorded) {
    return recorded.program == program && same_kind(recorded.inputs, inputs);
  });
  if (known != programs_.end()) {
    std::rotate(programs_.begin(), known, known + 1);
    return programs_.front();
  }
  if (programs_.size() == kPrograms) programs_.pop_back();
  Recorded& recorded = programs_.emplace_front();
  recorded.program = program;
  recorded.inputs = inputs;
  const LayerSet performed = performed_layers(plan_, program, machine_.layers_with_host_inputs());
  const auto needs_host = [&](const Action& action) { return machine_.needs_host(action); };
  for (const Segment& range : segments_of(plan_, program, performed, needs_host))
    recorded.segments.push_back({.range = range});
  // A step without its layers is not worth recording.
  if (std::ranges::none_of(recorded.segments, [&](const RecordedSegment& segment) {
        return runs_layers(program, segment.range);
      }))
    recorded.segments.clear();
  return recorded;
}

// Called at the first program: `on` fails, `auto` reports the reason.
void RecordedMachine::record_nothing(const Recorded& recorded) {
  const LayerSet performed =
      performed_layers(plan_, recorded.program, machine_.layers_with_host_inputs());
  const auto first = std::ranges::find_if(recorded.program, [&](const Action& action) {
    return action.op == Op::kForward && why_performed(plan_, performed, action) != nullptr;
  });
  const bool found = first != recorded.program.end();
  const std::string where = found ? to_string(*first) : "train.graph";
  const std::string why =
      found ? why_performed(plan_, performed, *first) : "all of it is done by the host";
  if (options_.mode == GraphMode::kOn)
    throw UserError({.operation = kOperation,
                     .where = where,
                     .what = "nothing of the step can be recorded: " + why,
                     .expected = "layers that stay on their device, on one rank",
                     .fix = "set train.graph=auto"});
  if (options_.report) options_.report("steps are not recorded: " + where + ": " + why);
  records_ = false;
  programs_.clear();
}

void RecordedMachine::begin(const Program& program, StepInputs inputs) {
  position_ = performed_until_ = 0;
  current_ = nullptr;
  performed_any_ = false;
  // Scores are copied to the host one by one.
  if (records_ && inputs.scores == nullptr) {
    Recorded& recorded = find(program, inputs);
    if (recorded.segments.empty()) {
      record_nothing(recorded);
    } else if (recorded.performed++ >= kWarmUp) {
      current_ = &recorded;
      begun_ = inputs;
    }
  }
  machine_.begin(program, std::move(inputs));
}

RecordedMachine::RecordedSegment* RecordedMachine::segment_at(std::size_t position) {
  for (RecordedSegment& segment : current_->segments)
    if (position >= segment.range.begin && position < segment.range.end) return &segment;
  return nullptr;
}

void RecordedMachine::perform(const Action& action) {
  const std::size_t position = position_++;
  if (position < performed_until_) return;
  RecordedSegment* segment = current_ ? segment_at(position) : nullptr;
  if (!segment) {
    performed_any_ = true;
    return machine_.perform(action);
  }
  if (position != segment->range.begin) return;  // done with the first one
  // One pair of events a segment: what is recorded knows no times.
  const LayerRange layers = current_->program[position].layers;
  const auto span =
      machine_.device_span(TrackKind::kCompute, layers.begin < layers.end ? layers.begin : -1);
  if (segment->recording) return replay(*segment);
  auto recording = options_.make_recording(device_);
  try {
    record(*segment, *recording);
  } catch (const std::exception& error) {
    if (recording->does_as_it_records()) throw;
    return give_up(*segment, error);
  }
  segment->recording = std::move(recording);
  ++use_.recorded;
}

void RecordedMachine::perform_all(const Segment& range) {
  for (std::size_t position = range.begin; position < range.end; ++position) {
    const Action& action = current_->program[position];
    const auto place = [&] {
      return "position " + std::to_string(position) + " \"" + to_string(action) + "\"";
    };
    try {
      machine_.perform(action);
    } catch (const Error& error) {
      ErrorText text = error.text();
      text.where += (text.where.empty() ? "" : ", ") + place();
      throw_error({error.kind(), std::move(text)});
    } catch (const std::exception& error) {
      throw InternalError({.operation = kOperation,
                           .where = place(),
                           .what = "an operator failed",
                           .got = error.what()});
    }
  }
}

void RecordedMachine::record(RecordedSegment& segment, Recording& recording) {
  current_->inputs = begun_;
  machine_.reclaim_exports();
  segment.before = machine_.tables().dense();
  machine_.set_tables(segment.before);
  recording.record([this, &segment, done = false]() mutable {
    perform_all(segment.range);
    if (std::exchange(done, true)) {
      machine_.tables().copy_to(segment.after);
      machine_.set_tables({});  // a device leaves nothing on the host
    } else {
      segment.after = machine_.tables().dense();
    }
  });
  machine_.set_tables(segment.after);
}

void RecordedMachine::replay(RecordedSegment& segment) {
  machine_.tables().copy_to(segment.before);
  machine_.set_tables(segment.before);
  machine_.reclaim_exports();
  StepInputs now = machine_.exchange_inputs(current_->inputs);
  segment.recording->replay();
  machine_.exchange_inputs(std::move(now));
  machine_.set_tables(segment.after);
  ++use_.replayed;
}

// The device has run nothing of a segment whose recording failed. If no message was sent yet, the
// step can restart.
void RecordedMachine::give_up(const RecordedSegment& segment, const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  if (options_.mode == GraphMode::kOn || performed_any_) {
    const ErrorText text = known ? known->text() : ErrorText{.got = error.what()};
    throw UserError(
        {.operation = kOperation,
         .where = text.where,
         .what = "the step cannot be recorded" + (text.what.empty() ? "" : ": " + text.what),
         .expected = text.expected,
         .got = text.got,
         .fix = "set train.graph=off"});
  }
  if (options_.report) options_.report(std::string("steps are not recorded: ") + error.what());
  records_ = false;
  machine_.begin(current_->program, begun_);
  perform_all({0, segment.range.end});
  performed_until_ = segment.range.end;
  current_ = nullptr;
  programs_.clear();
}

}  // namespace strata

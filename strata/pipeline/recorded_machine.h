/// Runs programs as segments that a device records once and repeats: a machine in front of a
/// StageMachine.
///
/// A program with inputs at fixed addresses is performed twice, recorded the third time and
/// replayed from then on, for short and full micro-batches alike. Inputs at other addresses or of
/// other shapes, or another program, are recorded separately. Data that segments leave for each
/// other and for the actions in between stays at its recorded address.
///
/// Threads  the rank's.
/// Errors   UserError: recording is required, but the program or one of its calls cannot be
///          recorded; names the action, as does the report of `auto`. Passes on what actions throw,
///          prefixed with the action.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "strata/pipeline/graph_options.h"
#include "strata/pipeline/stage_machine.h"
#include "strata/schedule/segments.h"

namespace strata {

class RecordedMachine final : public Machine {
 public:
  RecordedMachine(StageMachine& machine, StepPlan plan, Device device, GraphOptions options);

  /// As StageMachine::begin. Inputs must stay at the same addresses while a recording lives. Their
  /// writer (BatchBuffers) may overwrite them once the previous step was enqueued.
  void begin(const Program& program, StepInputs inputs);
  void perform(const Action& action) override;

  /// Whether programs are recorded at all.
  bool records() const { return records_; }

  /// Counts of segments since the machine was created.
  struct Use {
    std::int64_t recorded = 0;
    std::int64_t replayed = 0;
  };
  const Use& use() const { return use_; }

 private:
  struct RecordedSegment {
    Segment range;
    std::unique_ptr<Recording> recording;  // null: not yet
    StageMachine::Tables before, after;    // the tensors that it reads and writes
  };
  struct Recorded {
    Program program;
    StepInputs inputs;  // the inputs of the recording; they own their memory
    int performed = 0;
    std::vector<RecordedSegment> segments;
  };
  // libraries create handles, modules and connections at first use
  static constexpr int kWarmUp = 2;
  static constexpr std::size_t kPrograms = 4;  // with more, recordings are replayed too rarely

  Recorded& find(const Program& program, const StepInputs& inputs);
  void record_nothing(const Recorded& recorded);
  RecordedSegment* segment_at(std::size_t position);
  void record(RecordedSegment& segment, Recording& recording);
  void replay(RecordedSegment& segment);
  void perform_all(const Segment& range);
  void give_up(const RecordedSegment& segment, const std::exception& error);

  StageMachine& machine_;
  StepPlan plan_;
  Device device_;
  GraphOptions options_;
  bool records_;
  std::deque<Recorded> programs_;  // the most recently used first
  Recorded* current_ = nullptr;    // null: every action is performed
  StepInputs begun_;               // inputs to restart with if a recording fails
  std::size_t position_ = 0;
  std::size_t performed_until_ = 0;  // by a step that was restarted
  bool performed_any_ = false;       // of the current step
  Use use_;
};

}  // namespace strata

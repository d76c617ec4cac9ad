/// Performs programs by segments that a device was given once and repeats: a machine in front of a
/// StageMachine.
///
/// A program on inputs at one place is performed twice, recorded the third time and replayed from then
/// on, whether to a short micro-batch or a full one: inputs at another place, of other shapes, or another
/// program are recorded by themselves. What segments leave for one another and for the actions between
/// them has the place that it was recorded at.
///
/// Threads  the rank's.
/// Errors   UserError: recording is asked for and nothing of the program, or some call of it, can be
///          recorded; names the action, as does what `auto` says once. What actions throw, with the
///          action's place in front.
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

  /// As StageMachine::begin. Inputs are those of the same place for as long as a recording lives: whoever
  /// fills them (BatchBuffers) may do so when the step before was given to the device.
  void begin(const Program& program, StepInputs inputs);
  void perform(const Action& action) override;

  /// Whether programs are recorded at all.
  bool records() const { return records_; }

  /// Of segments, since the machine was made.
  struct Use {
    std::int64_t recorded = 0;
    std::int64_t replayed = 0;
  };
  const Use& use() const { return use_; }

 private:
  struct RecordedSegment {
    Segment range;
    std::unique_ptr<Recording> recording;  // null: not yet
    StageMachine::Tables before, after;    // the tensors that it reads and leaves
  };
  struct Recorded {
    Program program;
    StepInputs inputs;  // of the recording; they hold the memory of its inputs
    int performed = 0;
    std::vector<RecordedSegment> segments;
  };
  static constexpr int kWarmUp = 2;  // handles, modules and connections are made on first use
  static constexpr std::size_t kPrograms = 4;  // recordings of more are too seldom replayed

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
  std::deque<Recorded> programs_;  // the last used one in front
  Recorded* current_ = nullptr;    // null: every action is performed
  StepInputs begun_;               // to begin anew if a recording fails
  std::size_t position_ = 0;
  std::size_t performed_until_ = 0;  // by a step that began anew
  bool performed_any_ = false;       // of the step that runs
  Use use_;
};

}  // namespace strata

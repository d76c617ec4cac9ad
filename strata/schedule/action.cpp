#include "strata/schedule/action.h"

#include <iterator>

#include "strata/base/enum_names.h"
#include "strata/base/errors.h"

namespace strata {

namespace {

enum class Kind : std::uint8_t { kCompute, kSend, kReceive, kOther };

struct Description {
  Op op;
  const char* name;  // short name in traces and grids
  // words in messages to the user; the send and the receive of a message share them
  const char* words;
  Kind kind = Kind::kOther;
  const char* of = "";   // prefix of a message's index: "v" for a value, "t" for a tie
  const char* way = "";  // messages with one consumer: "<-" from the consumer, "->" to it
};

// The names of each operation, in the order of the enumerators. A receive follows its send.
constexpr Description kOperations[] = {
    {Op::kForward, "F", "forward", Kind::kCompute},
    {Op::kRecompute, "R", "recompute", Kind::kCompute},
    {Op::kBackward, "B", "backward", Kind::kCompute},
    {Op::kBackwardInput, "I", "input gradients", Kind::kCompute},
    {Op::kBackwardWeight, "W", "weight gradients", Kind::kCompute},
    {Op::kOffloadActivations, "OA", "activation offload"},
    {Op::kFetchActivations, "FA", "activation fetch"},
    {Op::kSendActivation, "SF", "activation", Kind::kSend, "v"},
    {Op::kReceiveActivation, "RF", "activation", Kind::kReceive, "v"},
    {Op::kSendGradient, "SB", "gradient", Kind::kSend, "v", "<-"},
    {Op::kReceiveGradient, "RB", "gradient", Kind::kReceive, "v", "<-"},
    {Op::kSendTiedGradient, "SG", "tied gradient", Kind::kSend, "t", "<-"},
    {Op::kReceiveTiedGradient, "RG", "tied gradient", Kind::kReceive, "t", "<-"},
    {Op::kAddTiedGradients, "TG", "tied gradient"},
    {Op::kPrefetchWeights, "FW", "weights"},
    {Op::kReleaseWeights, "XW", "weights"},
    {Op::kOffloadGradients, "OG", "gradient offload"},
    {Op::kReduceGradients, "DG", "gradient reduction"},
    {Op::kAwaitGradients, "AG", "gradient reduction"},
    {Op::kReduceNormAndLoss, "N", "gradient norm"},
    {Op::kUpdate, "U", "update"},
    {Op::kGatherWeights, "GW", "updated weights"},
    {Op::kPrefetchRows, "PR", "embedding rows"},
    {Op::kFetchRows, "FR", "embedding rows"},
    {Op::kSendRowGradients, "SR", "row gradients"},
    {Op::kSendTiedWeight, "SW", "tied weight", Kind::kSend, "t", "->"},
    {Op::kReceiveTiedWeight, "RW", "tied weight", Kind::kReceive, "t", "->"},
};

constexpr bool is_in_order() {
  for (int i = 0; i < kNumOps; ++i) {
    if (kOperations[i].op != static_cast<Op>(i)) return false;
    if (kOperations[i].kind == Kind::kSend && kOperations[i + 1].kind != Kind::kReceive)
      return false;
    const bool message =
        kOperations[i].kind == Kind::kSend || kOperations[i].kind == Kind::kReceive;
    if (message != (*kOperations[i].of != 0)) return false;
  }
  return true;
}
static_assert(std::size(kOperations) == kNumOps && is_in_order());

const Description& described(Op op) { return kOperations[static_cast<int>(op)]; }

}  // namespace

bool is_compute(Op op) { return described(op).kind == Kind::kCompute; }
bool is_send(Op op) { return described(op).kind == Kind::kSend; }
bool is_receive(Op op) { return described(op).kind == Kind::kReceive; }

bool makes_input_gradients(Op op) { return op == Op::kBackward || op == Op::kBackwardInput; }
bool ends_weight_gradients(Op op) { return op == Op::kBackward || op == Op::kBackwardWeight; }

Op receive_of(Op send) {
  STRATA_CHECK(is_send(send), "schedule.receive_of");
  return static_cast<Op>(static_cast<int>(send) + 1);
}

const char* name_of(ScheduleKind kind) {
  using enum ScheduleKind;
  static constexpr EnumNames<ScheduleKind> kNames{
      {kGpipe, "gpipe"},    {kVertical, "vertical"},
      {k1f1b, "1f1b"},      {kInterleaved, "interleaved"},
      {kZbH1, "zb-h1"},     {kZbH2, "zb-h2"},
      {kZbv, "zbv"},        {kVHalf, "v-half"},
      {kVMin, "v-min"},     {kDualPipeV, "dualpipev"},
      {kZb, "zb"},          {kFile, "file"},
      {kForward, "forward"}};
  return kNames[kind];
}

const char* kind_of(Op op) { return described(op).name; }
const char* words_for(Op op) { return described(op).words; }

namespace {

// The message's name: "v7" is an activation, "v7<-8" its gradient from layer 8, "t0<-8" a tied
// gradient, "t0->8" the updated weight sent to layer 8.
std::string message_name(const Action& action) {
  const Description& described_op = described(action.op);
  const std::string name = described_op.of + std::to_string(action.value);
  return *described_op.way ? name + described_op.way + std::to_string(action.consumer) : name;
}

}  // namespace

std::string to_string(const Action& action) {
  std::string text = kind_of(action.op);
  const bool transfer = is_send(action.op) || is_receive(action.op);
  if (transfer) text += " " + message_name(action);
  if (action.op == Op::kAddTiedGradients) text += " t" + std::to_string(action.value);
  if (is_compute(action.op)) text += " s" + std::to_string(action.stage);
  if (action.micro_batch >= 0) text += " m" + std::to_string(action.micro_batch);
  if (action.layers.size() > 0) {
    text +=
        " [" + std::to_string(action.layers.begin) + "," + std::to_string(action.layers.end) + ")";
  }
  if (transfer) {
    text += (is_send(action.op) ? " to rank " : " from rank ") + std::to_string(action.peer);
  }
  return text;
}

}  // namespace strata

#include "strata/schedule/action.h"

#include "strata/base/errors.h"

namespace strata {

bool is_compute(Op op) { return op == Op::kForward || op == Op::kRecompute || op == Op::kBackward; }

bool is_send(Op op) {
  return op == Op::kSendActivation || op == Op::kSendGradient || op == Op::kSendTiedGradient ||
         op == Op::kSendTiedWeight;
}

bool is_receive(Op op) {
  return op == Op::kReceiveActivation || op == Op::kReceiveGradient ||
         op == Op::kReceiveTiedGradient || op == Op::kReceiveTiedWeight;
}

Op receive_of(Op send) {
  STRATA_CHECK(is_send(send), "schedule.receive_of");
  return static_cast<Op>(static_cast<int>(send) + 1);
}

const char* kind_of(Op op) {
  switch (op) {
    case Op::kForward:
      return "F";
    case Op::kRecompute:
      return "R";
    case Op::kBackward:
      return "B";
    case Op::kSendActivation:
      return "SF";
    case Op::kReceiveActivation:
      return "RF";
    case Op::kSendGradient:
      return "SB";
    case Op::kReceiveGradient:
      return "RB";
    case Op::kSendTiedGradient:
      return "SG";
    case Op::kReceiveTiedGradient:
      return "RG";
    case Op::kAddTiedGradients:
      return "TG";
    case Op::kFetchWeights:
      return "FW";
    case Op::kReleaseWeights:
      return "XW";
    case Op::kReduceGradients:
      return "DG";
    case Op::kAwaitGradients:
      return "AG";
    case Op::kReduceNorm:
      return "N";
    case Op::kUpdate:
      return "U";
    case Op::kGatherWeights:
      return "GW";
    case Op::kSendTiedWeight:
      return "SW";
    case Op::kReceiveTiedWeight:
      return "RW";
  }
  return "?";
}

const char* words_for(Op op) {
  switch (op) {
    case Op::kForward:
      return "forward";
    case Op::kRecompute:
      return "recompute";
    case Op::kBackward:
      return "backward";
    case Op::kSendActivation:
    case Op::kReceiveActivation:
      return "activation";
    case Op::kSendGradient:
    case Op::kReceiveGradient:
      return "gradient";
    case Op::kSendTiedGradient:
    case Op::kReceiveTiedGradient:
    case Op::kAddTiedGradients:
      return "tied gradient";
    case Op::kFetchWeights:
    case Op::kReleaseWeights:
      return "weights";
    case Op::kReduceGradients:
    case Op::kAwaitGradients:
      return "gradient reduction";
    case Op::kReduceNorm:
      return "gradient norm";
    case Op::kUpdate:
      return "update";
    case Op::kGatherWeights:
      return "updated weights";
    case Op::kSendTiedWeight:
    case Op::kReceiveTiedWeight:
      return "tied weight";
  }
  return "?";
}

namespace {

// What travels: "v7" for an activation, "v7<-8" for its gradient from layer 8; "t0<-8" for a tied
// gradient, "t0->8" for the weight on its way back to layer 8.
std::string message_name(const Action& action) {
  const std::string value = std::to_string(action.value);
  const std::string consumer = std::to_string(action.consumer);
  switch (action.op) {
    case Op::kSendActivation:
    case Op::kReceiveActivation:
      return "v" + value;
    case Op::kSendGradient:
    case Op::kReceiveGradient:
      return "v" + value + "<-" + consumer;
    case Op::kSendTiedGradient:
    case Op::kReceiveTiedGradient:
      return "t" + value + "<-" + consumer;
    default:
      return "t" + value + "->" + consumer;
  }
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

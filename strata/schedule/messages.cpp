#include "strata/schedule/messages.h"

#include <algorithm>

namespace strata::schedule {
namespace {

[[noreturn]] void no_such_message(const Action& action, const char* expected) {
  throw BrokenRule("the action names no message of this model", expected, to_string(action));
}

std::size_t position_of(const std::vector<int>& layers, const Action& action,
                        const char* expected) {
  const auto found = std::lower_bound(layers.begin(), layers.end(), action.consumer);
  if (found == layers.end() || *found != action.consumer) no_such_message(action, expected);
  return found - layers.begin();
}

}  // namespace

// Records lie in four blocks: activations by (value, receiving rank, micro-batch), gradients by
// (value, consumer, micro-batch), tied gradients and tied weights by (tie, user).
Messages::Messages(const Schedule& schedule, const Wiring& wiring)
    : wiring_(&wiring), ranks_(schedule.num_ranks()), micro_batches_(schedule.num_micro_batches) {
  std::size_t rows = wiring.values.size() * ranks_;
  for (const Value& value : wiring.values) {
    first_edge_.push_back(rows);
    rows += value.consumers.size();
  }
  for (const Tie& tie : wiring.ties) {
    first_use_.push_back(rows * micro_batches_ + uses_);
    uses_ += tie.users.size();
  }
  records_.resize(rows * micro_batches_ + 2 * uses_);
}

std::size_t Messages::per_micro_batch(std::size_t row, const Action& action) const {
  if (action.micro_batch < 0 || action.micro_batch >= static_cast<int>(micro_batches_)) {
    no_such_message(action, "a micro-batch of this schedule");
  }
  return row * micro_batches_ + action.micro_batch;
}

std::size_t Messages::index(const Action& action, int rank) const {
  const bool tied = action.op >= Op::kSendTiedGradient;
  if (action.value < 0 ||
      action.value >= static_cast<int>(tied ? wiring_->ties.size() : wiring_->values.size())) {
    no_such_message(action, tied ? "a tie of this model" : "a value of this model");
  }
  if (action.peer < 0 || action.peer >= static_cast<int>(ranks_) || action.peer == rank) {
    no_such_message(action, "another rank of this schedule as its peer");
  }
  switch (action.op) {
    case Op::kSendActivation:
    case Op::kReceiveActivation: {
      const int to = is_send(action.op) ? action.peer : rank;
      return per_micro_batch(action.value * ranks_ + to, action);
    }
    case Op::kSendGradient:
    case Op::kReceiveGradient:
      return per_micro_batch(
          first_edge_[action.value] + position_of(wiring_->values[action.value].consumers, action,
                                                  "a consumer of the value"),
          action);
    default: {
      const bool weight = action.op == Op::kSendTiedWeight || action.op == Op::kReceiveTiedWeight;
      return first_use_[action.value] + (weight ? uses_ : 0) +
             position_of(wiring_->ties[action.value].users, action, "a user of the tie");
    }
  }
}

void Messages::send(const Action& action, int rank) {
  Record& record = records_[index(action, rank)];
  if (record.from >= 0) {
    throw BrokenRule("a message is sent twice", "one send a message", to_string(action));
  }
  record.from = rank;
  record.to = action.peer;
}

bool Messages::arrived(const Action& receive, int rank) const {
  const Record& record = records_[index(receive, rank)];
  return record.from == receive.peer && record.to == rank;
}

void Messages::receive(const Action& action, int rank) {
  Record& record = records_[index(action, rank)];
  if (record.received) {
    throw BrokenRule("a message is received twice", "one receive a message", to_string(action));
  }
  record.received = true;
}

bool Messages::was_received(const Action& action, int rank) const {
  return records_[index(action, rank)].received;
}

bool Messages::match(const Action& send, int sender, const Action& receive, int receiver) {
  return is_send(send.op) && receive_of(send.op) == receive.op && send.value == receive.value &&
         send.consumer == receive.consumer && send.micro_batch == receive.micro_batch &&
         send.peer == receiver && receive.peer == sender;
}

}  // namespace strata::schedule

// Sends and receives are matched by value, consumer and micro-batch instead of by position, so that
// passes may place them independently.
#include "strata/schedule/messages.h"

#include <algorithm>

#include "strata/base/philox.h"

namespace strata {
namespace {

[[noreturn]] void no_such_message(const Action& action, const char* expected) {
  throw BrokenRule("the action names no message of this model", expected, to_string(action));
}

void check_reads(const std::vector<int>& layers, const Action& action, const char* expected) {
  if (!std::binary_search(layers.begin(), layers.end(), action.consumer))
    no_such_message(action, expected);
}

}  // namespace

MessageKey message_key(const Action& action, int rank) {
  const bool send = is_send(action.op);
  return {static_cast<int>(send ? receive_of(action.op) : action.op),
          action.value,
          action.consumer,
          action.micro_batch,
          send ? rank : action.peer,
          send ? action.peer : rank};
}

Messages::Messages(const Schedule& schedule, const Dataflow& dataflow)
    : dataflow_(&dataflow),
      ranks_(schedule.num_ranks()),
      micro_batches_(schedule.num_micro_batches) {}

std::size_t Messages::KeyHash::operator()(const Key& key) const {
  const auto bits = [](std::int32_t number) { return static_cast<std::uint32_t>(number); };
  return mix_key(mix_key(static_cast<std::uint64_t>(key.op), bits(key.value)),
                 static_cast<std::uint64_t>(bits(key.end)) << 32 | bits(key.micro_batch));
}

Messages::Key Messages::key(const Action& action, int rank) const {
  const bool tied = action.op >= Op::kSendTiedGradient;
  if (action.value < 0 ||
      action.value >= static_cast<int>(tied ? dataflow_->ties.size() : dataflow_->values.size())) {
    no_such_message(action, tied ? "a tie of this model" : "a value of this model");
  }
  if (action.peer < 0 || action.peer >= ranks_ || action.peer == rank) {
    no_such_message(action, "another rank of this schedule as its peer");
  }
  Key key{.op = is_send(action.op) ? receive_of(action.op) : action.op,
          .value = action.value,
          .end = action.consumer,
          .micro_batch = action.micro_batch};
  if (tied) {
    check_reads(dataflow_->ties[action.value].users, action, "a user of the tie");
    key.micro_batch = -1;
    return key;
  }
  if (key.op == Op::kReceiveActivation) {
    key.end = is_send(action.op) ? action.peer : rank;
  } else {
    check_reads(dataflow_->values[action.value].consumers, action, "a consumer of the value");
  }
  if (action.micro_batch < 0 || action.micro_batch >= micro_batches_) {
    no_such_message(action, "a micro-batch of this schedule");
  }
  return key;
}

const Messages::Record* Messages::find(const Action& action, int rank) const {
  const auto found = records_.find(key(action, rank));
  return found == records_.end() ? nullptr : &found->second;
}

void Messages::send(const Action& action, int rank) {
  Record& record = records_[key(action, rank)];
  if (record.from >= 0) {
    throw BrokenRule("a message is sent twice", "one send a message", to_string(action));
  }
  record.from = rank;
  record.to = action.peer;
}

bool Messages::arrived(const Action& receive, int rank) const {
  const Record* record = find(receive, rank);
  return record && record->from == receive.peer && record->to == rank;
}

void Messages::receive(const Action& action, int rank) {
  Record& record = records_[key(action, rank)];
  if (record.received) {
    throw BrokenRule("a message is received twice", "one receive a message", to_string(action));
  }
  record.received = true;
}

bool Messages::was_received(const Action& action, int rank) const {
  const Record* record = find(action, rank);
  return record && record->received;
}

bool Messages::match(const Action& send, int sender, const Action& receive, int receiver) {
  return is_send(send.op) && receive_of(send.op) == receive.op && send.value == receive.value &&
         send.consumer == receive.consumer && send.micro_batch == receive.micro_batch &&
         send.peer == receiver && receive.peer == sender;
}

}  // namespace strata

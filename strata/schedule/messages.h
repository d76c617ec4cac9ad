/// Records every message of a step: its sender, its receiver and whether it was received.
///
/// Cost  one lookup in a hash table per call; memory grows with the messages sent so far.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <string>
#include <unordered_map>

#include "strata/layout/dataflow.h"
#include "strata/schedule/action.h"

namespace strata {

/// Reports what is wrong with an action. The validator adds the position and the grid.
struct BrokenRule : std::exception {
  BrokenRule(std::string what, std::string expected, std::string got)
      : what_broke(std::move(what)), expected(std::move(expected)), got(std::move(got)) {}
  const char* what() const noexcept override { return what_broke.c_str(); }
  std::string what_broke, expected, got;
};

/// Identifies a message of a step, with the same key on both ranks: the operation that receives it,
/// value, consumer, micro-batch, sender, receiver. `rank` is the rank that performs the action.
using MessageKey = std::array<int, 6>;
MessageKey message_key(const Action& action, int rank);

class Messages {
 public:
  Messages(const Schedule& schedule, const Dataflow& dataflow);

  /// These functions throw BrokenRule if the action names no message of the dataflow.
  void send(const Action& action, int rank);
  bool arrived(const Action& receive, int rank) const;
  void receive(const Action& action, int rank);
  bool was_received(const Action& action, int rank) const;

  /// True if `send` on `sender` is what `receive` on `receiver` waits for.
  static bool match(const Action& send, int sender, const Action& receive, int receiver);

 private:
  // The content of a message: an activation of a value for a rank, a gradient of a value from a
  // consumer, or a gradient or weight of a tie from or to a consumer.
  struct Key {
    Op op;  // the receiving operation
    std::int32_t value, end, micro_batch;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const;
  };
  struct Record {
    std::int32_t from = -1;
    std::int32_t to = -1;
    bool received = false;
  };
  Key key(const Action& action, int rank) const;
  const Record* find(const Action& action, int rank) const;

  const Dataflow* dataflow_;
  int ranks_, micro_batches_;
  std::unordered_map<Key, Record, KeyHash> records_;
};

}  // namespace strata

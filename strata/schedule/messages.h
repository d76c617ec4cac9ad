/// Keeps account of every message of a step: who sent it to whom, and whether it was taken.
///
/// Cost  one array lookup a call; memory is that of one record a possible message.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "strata/schedule/action.h"
#include "strata/schedule/wiring.h"

namespace strata::schedule {

/// Says what is wrong with an action; the validator adds the place and the picture.
struct BrokenRule : std::exception {
  BrokenRule(std::string what, std::string expected, std::string got)
      : what_broke(std::move(what)), expected(std::move(expected)), got(std::move(got)) {}
  const char* what() const noexcept override { return what_broke.c_str(); }
  std::string what_broke, expected, got;
};

class Messages {
 public:
  Messages(const Schedule& schedule, const Wiring& wiring);

  /// All of these throw BrokenRule if the action names no message of the wiring.
  void send(const Action& action, int rank);
  bool arrived(const Action& receive, int rank) const;
  void receive(const Action& action, int rank);
  bool was_received(const Action& action, int rank) const;

  /// True if `send` on `sender` is what `receive` on `receiver` waits for.
  static bool match(const Action& send, int sender, const Action& receive, int receiver);

 private:
  struct Record {
    std::int32_t from = -1;
    std::int32_t to = -1;
    bool received = false;
  };
  std::size_t index(const Action& action, int rank) const;
  std::size_t per_micro_batch(std::size_t row, const Action& action) const;

  const Wiring* wiring_;
  std::size_t ranks_, micro_batches_;
  std::vector<std::size_t> first_edge_;  // per value: rows of its gradients
  std::vector<std::size_t> first_use_;   // per tie: records of its users' gradients
  std::size_t uses_ = 0;
  std::vector<Record> records_;
};

}  // namespace strata::schedule

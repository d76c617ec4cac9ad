/// Tracks whether the bytes of one kind of a layer's state are where the rank uses them, and how
/// many pins hold them there.
///
///     kAway -> kArriving -> kHere -> kLeaving -> kAway
///
/// Where nothing is left to wait for, kArriving and kLeaving are skipped. A transfer exists exactly
/// in these two states. If it fails, the bytes are away.
///
/// Threads  the store's.
/// Errors   InternalError: a transition that the diagram does not have; a pin of bytes that are not
///          here; pinned bytes that leave. finish(): the error of the transfer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "strata/tier/state_backend.h"

namespace strata {

class Presence {
 public:
  enum class State : std::uint8_t { kAway, kArriving, kHere, kLeaving };

  State state() const { return state_; }
  int pins() const { return pins_; }

  void arrive(std::unique_ptr<Transfer> transfer);  ///< from kAway; null: the bytes are here
  void leave(std::unique_ptr<Transfer> transfer);   ///< from kHere; null: the bytes are away
  void outdate();  ///< from kHere or kAway: the bytes are old, and are fetched again

  /// Ends kArriving or kLeaving: `wait` gets the completion of the transfer.
  void finish(const std::function<void(Completion)>& wait);

  void pin();
  void unpin();

 private:
  void require(bool follows, const char* transition) const;

  State state_ = State::kAway;
  int pins_ = 0;
  std::unique_ptr<Transfer> transfer_;
};

const char* name_of(Presence::State state);

}  // namespace strata

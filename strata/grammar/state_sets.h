/// Follows texts through an automaton: a state stands for all ways in which the text so far can
/// match, and the states and their steps are found as they are needed and kept.
///
/// A way is a state of a rule and a frame. A frame stands for all calls of a rule at one place of
/// the text: where each resumes, in which frame. Calls at the end of a rule resume where that rule
/// would, so lists that are written as recursion need no deeper frames. The number of ways grows
/// with the text's length at most linearly in each state, as with Earley's method.
///
/// Source   Earley 1970; Scott and Johnstone 2010 (shared stacks); Leo 1991 (last calls).
/// Threads  one.
/// Errors   UserError: more memory than kMaxBytes; since begin(), more work than kMaxWork and
///          kMaxWorkOfByte.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <span>
#include <unordered_set>
#include <vector>

#include "strata/grammar/automaton.h"

namespace strata {

class StateSets {
 public:
  using State = std::uint32_t;
  static constexpr State kDead = 0;  ///< no text matches that begins like this one

  static constexpr std::size_t kMaxBytes = std::size_t{32} << 20;
  static constexpr std::size_t kMaxWork = 200'000;   ///< ways; some milliseconds
  static constexpr std::size_t kMaxWorkOfByte = 64;  ///< more of them for each byte of a text
  static constexpr std::size_t kEdgesOfAWay = 32;    ///< edges of bytes whose test costs as much

  explicit StateSets(std::shared_ptr<const Automaton> automaton);

  State start() const { return start_; }
  State next(State state, unsigned char byte) {
    const std::uint32_t byte_class = automaton_->classes[byte];
    const State target = steps_[state * classes_ + byte_class];
    return target != kUnknown ? target : find_step(state, byte_class);
  }
  bool may_end(State state) const { return may_end_[state]; }  ///< the text matches

  /// Begins an operation, whose work is limited. Forgets all states after an error.
  void begin();
  /// The operation follows so many bytes of a text, which increases the limit of its work.
  void expect_bytes(std::size_t bytes) { max_work_ += bytes * kMaxWorkOfByte; }
  /// Forgets all other states if the states need more than half of kMaxBytes. Returns the new
  /// number of `state`.
  State keep(State state);
  std::uint64_t age() const { return age_; }              ///< changes when states are forgotten
  std::size_t states() const { return may_end_.size(); }  ///< kept now

 private:
  static constexpr std::uint32_t kUnknown = UINT32_MAX;

  // A state of the automaton, with the count of a counter; where the rule's end resumes.
  struct Way {
    std::uint32_t frame = 0;
    std::uint32_t state = 0;
    std::uint32_t count = 0;
    auto operator<=>(const Way&) const = default;
  };
  // Lists of ways, each stored once. Numbers grow, so a frame's ways are in frames of lower number.
  class Lists {
   public:
    Lists();
    std::uint32_t add(std::vector<Way>& ways);  // sorts them
    std::span<const Way> at(std::uint32_t list) const {
      return std::span(ways_).subspan(begins_[list], begins_[list + 1] - begins_[list]);
    }
    std::size_t size() const { return begins_.size() - 1; }
    std::size_t bytes() const { return ways_.size() * sizeof(Way) + begins_.size() * 64; }

   private:
    struct Hash {
      const Lists* lists;
      std::size_t operator()(std::uint32_t list) const;
    };
    struct Equal {
      const Lists* lists;
      bool operator()(std::uint32_t a, std::uint32_t b) const;
    };
    std::vector<Way> ways_;
    std::vector<std::size_t> begins_ = {0};
    std::unordered_set<std::uint32_t, Hash, Equal> known_;
  };

  void clear();
  State find_step(State state, std::uint32_t byte_class);
  State close(bool may_end);
  State add_found();
  void add_way(const Way& way, bool is_new);
  void add_call(std::uint32_t rule, const Way& resume);
  bool only_ends(const Way& way) const;
  void check_limits();
  std::size_t bytes() const;

  const std::shared_ptr<const Automaton> automaton_;
  const std::size_t classes_;
  std::uint64_t age_ = 0;
  std::size_t work_ = 0;
  std::size_t max_work_ = kMaxWork;
  bool broken_ = false;  // by an error
  State start_ = kDead;

  std::unique_ptr<Lists> frames_;
  std::unique_ptr<Lists> ways_;  // by state: those that a byte may continue, and the end
  std::vector<State> steps_;     // by state and class of bytes
  std::vector<bool> may_end_;    // by state

  // Within close().
  std::priority_queue<Way> reached_;     // highest frame first
  std::vector<std::vector<Way>> calls_;  // by rule: where they resume
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> called_;
  std::vector<Way> found_;
};

}  // namespace strata

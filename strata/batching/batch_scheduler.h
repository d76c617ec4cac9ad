/// Decides which tokens of which sequences each forward pass computes, and in which pages.
///
/// A pass gives every running sequence that has its whole text in pages one token, then fills up to
/// `pass_tokens` with chunks of prompts, so no stream waits while another prompt is computed.
/// Sequences start and get pages in the order in which they came. If no page is free, the sequence
/// that came last loses its pages; its tokens are computed again later, unless lower tiers keep
/// them. Full pages of a text that an earlier sequence computed are reused. So the number of a
/// sequence's chunks, its neighbours in a pass and its pages vary, and the caller's logits must not
/// depend on them.
///
/// The order of calls: next_pass(), the forward pass, then advance() or finish() for each row that
/// chooses a token; add(), guess(), finish() and cancel() at any time between.
///
/// Source   Yu et al. 2022 (continuous batching), Agrawal et al. 2023 (chunked prefill), Kwon et
///          al. 2023 (pages, preemption by recompute).
/// Threads  one.
/// Cost     next_pass: O(running sequences + tokens and pages of the pass), and O(running sequences
///          * prompt) for each sequence that starts or that is next to start. add: O(prompt), and
///          O(live sequences) if it has to wait. No copy of a text but the prompt's.
/// Errors   UserError: a sequence that never fits. InternalError: calls in another order.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "strata/batching/page_pool.h"
#include "strata/batching/pass.h"
#include "strata/batching/token_service.h"

namespace strata {

struct BatchLimits {
  std::int64_t pages = 0;       ///< on the device
  std::int64_t host_pages = 0;  ///< lower tiers, for pages that sequences do not need now
  std::int64_t disk_pages = 0;
  std::int64_t page_tokens = 64;
  std::int64_t context = 0;        ///< tokens of the longest sequence
  std::int64_t sequences = 16;     ///< running at once
  std::int64_t pass_tokens = 512;  ///< new tokens of a pass, at least `sequences`
  std::int64_t pass_logits = 512;  ///< tokens of a pass that need logits, at least `sequences`
  std::int64_t waiting = 256;      ///< sequences
  /// Refuses a sequence that is predicted to wait longer; 0: none is.
  std::chrono::milliseconds longest_wait{0};
  bool reuse_pages = true;  ///< of equal beginnings
};

struct NewSequence {
  std::vector<std::int64_t> prompt;  ///< at least one token
  /// The most tokens that it may generate; fewer if the context is full before. 0: the caller
  /// finishes the sequence after its prompt.
  std::int64_t max_tokens = 0;
  bool score_prompt = false;  ///< every token of the prompt needs logits
  std::uint64_t key = 0;      ///< sequences reuse pages only of sequences with an equal key
};

/// A row of a pass, that of Batch::pass at the same index.
struct BatchRow {
  std::uint64_t id = 0;
  /// Whether the row reaches the end of the sequence. The last 1 + guesses of its logits then
  /// choose tokens, and the caller calls advance() or finish().
  bool chooses = false;
  std::int64_t guesses = 0;  ///< guessed tokens at the end of the row
};

struct Batch {
  PageMoves moves;  ///< before the pass
  Pass pass;
  std::vector<BatchRow> rows;
};

class BatchScheduler {
 public:
  explicit BatchScheduler(const BatchLimits& limits);

  /// Puts a sequence into the queue. A refusal (id 0) says when the same request may succeed.
  Admission add(NewSequence sequence);

  /// Gives the rows of the next pass, after the pass before has run: its keys and values lie in
  /// their pages now. Empty only if there is no sequence, or none that may start.
  Batch next_pass();

  /// Appends the tokens that the row of a sequence chose: the guesses that were right, in order,
  /// and one more token. Drops the other guesses. Returns whether the sequence may have more
  /// tokens; if not, the caller finishes it before the next pass.
  bool advance(std::uint64_t id, std::span<const std::int64_t> tokens);
  bool advance(std::uint64_t id, std::int64_t token) { return advance(id, {&token, 1}); }

  /// Proposes tokens after the last one of a sequence, for the next pass only. The pass drops those
  /// for which prompts leave no room, and never takes pages from other sequences for them.
  void guess(std::uint64_t id, std::vector<std::int64_t> tokens);
  /// Replaces the guesses of the pass that next_pass() returned by those at the ends of its rows.
  void replace_guesses(const Batch& batch);

  /// Ends a sequence; its pages become free.
  void finish(std::uint64_t id);
  /// The same for an id that may have ended before; returns whether it had not.
  bool cancel(std::uint64_t id);

  /// Takes all pages from all sequences, and never finds the pages of earlier weights again:
  /// running sequences compute their tokens anew with the weights of this version.
  void set_weights(std::uint64_t version);

  /// Until release(), only sequences that have been added before start.
  void hold() { last_admitted_ = last_id_; }
  void release() { last_admitted_.reset(); }
  /// While it is held: whether the sequences from before have ended.
  bool drained() const;

  /// Reports the time of a pass, from which waiting times are predicted.
  void measure(std::chrono::nanoseconds pass);

  std::span<const std::int64_t> tokens(std::uint64_t id) const;  ///< of prompt and answer
  /// Tokens of the prompt that were not computed when the sequence started.
  std::int64_t cached_tokens(std::uint64_t id) const;

  bool empty() const { return sequences_.empty(); }
  ServiceStatus status() const;  ///< all but `ready`
  const PagePool& pool() const { return pool_; }

 private:
  struct Room;
  struct Sequence {
    std::vector<std::int64_t> tokens = {};
    std::int64_t prompt = 0;   // tokens
    std::int64_t longest = 0;  // tokens of prompt and answer, at most
    bool score_prompt = false;
    std::uint64_t key = 0;
    bool running = false;        // has pages
    bool started = false;        // was running once
    std::int64_t cached = 0;     // tokens of the prompt that were found at the first start
    std::int64_t scored = 0;     // tokens of the prompt whose logits the caller has
    std::int64_t computed = 0;   // tokens whose keys and values lie in pages
    std::int64_t published = 0;  // pages
    std::int64_t planned = 0;    // new tokens of the pass, without guesses
    std::vector<std::int32_t> pages = {};
    std::vector<std::int64_t> guesses = {};

    std::int64_t length() const { return std::ssize(tokens); }
    std::int64_t pending() const { return length() - computed; }
    bool chooses() const { return planned > 0 && planned == pending(); }
    bool is_full() const { return length() == longest && longest > prompt; }
    // The first token whose logits the caller needs.
    std::int64_t needed() const { return score_prompt && scored < prompt ? scored : length() - 1; }
  };

  Sequence& at(std::uint64_t id);
  const Sequence& at(std::uint64_t id) const;
  void for_running(const std::function<void(Sequence&)>& run);
  std::optional<std::chrono::milliseconds> refusal(const Sequence& next) const;
  void commit_rows();
  void commit(Sequence& sequence, std::int64_t computed);
  void plan(Sequence& sequence, Room& room);
  void reserve_pages();
  bool extend(Sequence& sequence, std::int64_t tokens);
  void preempt(Sequence& sequence);
  void drop_pages(Sequence& sequence);
  void start_waiting(Room& room);
  bool start(Sequence& sequence);
  std::int64_t pages_of_this_pass(const Sequence& sequence) const;
  void keep_guesses(Sequence& sequence, Room& room);
  Batch make_batch();

  BatchLimits limits_;
  PagePool pool_;
  std::map<std::uint64_t, Sequence> sequences_;
  std::uint64_t weights_ = 0;
  std::optional<std::uint64_t> last_admitted_ = {};  // while it is held
  std::uint64_t last_id_ = 0;
  std::int64_t running_ = 0;
  double pass_seconds_ = 0;  // moving average
  ServiceStatus counters_;
};

}  // namespace strata

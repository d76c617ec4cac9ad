#include "strata/nn/ops/ring_attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <deque>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/nn/primitives/primitives.h"

namespace strata {
namespace {

// What a message holds.
enum Content : std::int32_t { kKeys, kTaken, kGradientsSoFar, kFinishedGradients, kNumContents };

// A rank sends keys on only if the next rank has taken all but so many of those before.
constexpr std::size_t kMostWaiting = 2;

// Heads of keys [first, first + count).
struct HeadRange {
  std::int64_t first, count;
};

class Ring {
 public:
  Ring(const Heads& heads, const ContextParallel& group)
      : heads_(heads),
        group_(group),
        split_(group.split()),
        rank_(group.rank()),
        tag_(group.begin()),
        chunk_(heads.q.size(1) / 2),
        block_(split_.block > 0 ? split_.block : chunk_),
        shared_(heads.q.size(2) / heads.k.size(2)) {
    STRATA_CHECK_EQ(heads.q.size(1) % (2 * block_), 0, "nn.ring_attend");
  }

  Attended attend() const {
    const at::Tensor& q = heads_.q;
    const Attended sum{at::empty(q.sizes(), q.options().dtype(at::kFloat)),
                       at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(at::kFloat))};
    const HeadRange all{0, heads_.k.size(2)};
    KeysBelow below(*this);
    Keys keys(*this, all, 0, below);
    for (int chunk = split_.late_chunk(rank_); chunk >= 0; --chunk) {
      const at::Tensor kv = keys.take(chunk);
      for_blocks(chunk, [&](const Pair& pair) {
        primitives(q).attention.attend_block(
            block_of(pair, heads_.q, kv),
            {rows(sum.y, pair.query), sum.log_sum.narrow(2, pair.query, block_)});
      });
    }
    below.await_all();
    return {sum.y.to(q.scalar_type()).view({q.size(0), q.size(1), q.size(2) * q.size(3)}),
            sum.log_sum};
  }

  void attend_gradient(const Attended& attended, const at::Tensor& dy,
                       const Heads& gradients) const {
    const std::int64_t count = heads_.k.size(2), groups = std::min(kRingHeadGroups, count);
    KeysBelow below(*this);
    Finished finished(*this, groups, gradients);
    for (std::int64_t i = 0; i < groups; ++i)
      pass_back(static_cast<int>(i), range_of(i, groups), attended, dy, gradients, below, finished);
    finished.receive_until(groups * split_.chunks());
    below.await_all();
  }

 private:
  // A block of the rank's queries and a block of a chunk's keys, as rows of the rank's queries and
  // of the chunk.
  struct Pair {
    std::int64_t query, key;
    bool own;
  };

  // Sends keys and values to the next lower rank, which says when it has taken them: a slow rank
  // does not collect the chunks of fast ones.
  class KeysBelow {
   public:
    explicit KeysBelow(const Ring& ring) : ring_(ring) {}

    void send(int chunk, int head_group, const at::Tensor& kv) {
      if (waiting_.size() == kMostWaiting) await_first();
      ring_.send(ring_.rank_ - 1, kKeys, chunk, head_group, kv);
      waiting_.emplace_back(chunk, head_group);
    }
    void await_all() {
      while (!waiting_.empty()) await_first();
    }

   private:
    void await_first() {
      const auto [chunk, head_group] = waiting_.front();
      ring_.group_.receive(ring_.rank_ - 1, ring_.tag_of(kTaken, chunk, head_group), {0},
                           ring_.heads_.k.options());
      waiting_.pop_front();
    }

    const Ring& ring_;
    std::deque<std::pair<int, int>> waiting_;
  };

  // Keys and values of the chunks in descending order, [2, B, chunk, heads, width] each.
  class Keys {
   public:
    Keys(const Ring& ring, HeadRange range, int head_group, KeysBelow& below)
        : ring_(ring), range_(range), head_group_(head_group), below_(below) {}

    at::Tensor take(int chunk) {
      const int last = ring_.split_.ranks - 1, rank = ring_.rank_;
      // The last rank needs this rank's early chunk in its next step.
      if (rank < last && step_++ == last - rank) {
        early_ = own(rank);
        ring_.send(last, kKeys, rank, head_group_, early_);
      }
      const int owner = ring_.split_.owner(chunk);
      at::Tensor kv;
      if (owner != rank) {
        const int from = rank == last ? owner : rank + 1;
        kv = ring_.receive(from, kKeys, chunk, head_group_, range_, ring_.heads_.k.scalar_type());
        if (rank < last) ring_.send(from, kTaken, chunk, head_group_, at::empty({0}, kv.options()));
      } else {
        kv = chunk == rank && early_.defined() ? std::exchange(early_, {}) : own(chunk);
      }
      if (rank > 0 && owner != rank - 1) below_.send(chunk, head_group_, kv);
      return kv;
    }

   private:
    // In one tensor, which other ranks read, too.
    at::Tensor own(int chunk) const {
      const auto part = [&](const at::Tensor& x) {
        return x.narrow(1, ring_.first_row(chunk), ring_.chunk_)
            .narrow(2, range_.first, range_.count);
      };
      return at::stack({part(ring_.heads_.k), part(ring_.heads_.v)});
    }

    const Ring& ring_;
    HeadRange range_;
    int head_group_;
    KeysBelow& below_;
    int step_ = 0;
    at::Tensor early_;  // from its sending until the rank attends to it
  };

  // Gradients of this rank's own keys and values, which rank 0 finishes. Chunks of all groups of
  // heads pass the ranks in one order; rank 0 has finished a chunk when this rank is about rank_
  // chunks further.
  class Finished {
   public:
    Finished(const Ring& ring, std::int64_t groups, const Heads& gradients)
        : ring_(ring), gradients_(gradients) {
      if (ring.rank_ == 0) return;  // writes its own
      for (std::int64_t group = 0; group < groups; ++group)
        for (const int chunk : {ring.split_.late_chunk(ring.rank_), ring.rank_})
          due_.push_back({static_cast<int>(group), chunk, ring.range_of(group, groups)});
    }

    // Receives the chunks before `position`.
    void receive_until(std::int64_t position) {
      for (; !due_.empty(); due_.pop_front()) {
        const auto& [head_group, chunk, range] = due_.front();
        if (ring_.position_of(head_group, chunk) >= position) return;
        ring_.write(chunk, range,
                    ring_.receive(0, kFinishedGradients, chunk, head_group, range, at::kFloat),
                    gradients_);
      }
    }

   private:
    struct Due {
      int head_group, chunk;
      HeadRange range;
    };
    const Ring& ring_;
    const Heads& gradients_;
    std::deque<Due> due_;
  };

  bool is_late(int chunk) const { return chunk >= split_.ranks; }
  // Of a chunk of this rank, among the rank's rows.
  std::int64_t first_row(int chunk) const { return is_late(chunk) ? chunk_ : 0; }
  HeadRange range_of(std::int64_t group, std::int64_t groups) const {
    const std::int64_t count = heads_.k.size(2), first = count * group / groups;
    return {first, count * (group + 1) / groups - first};
  }
  at::Tensor rows(const at::Tensor& x, std::int64_t first) const {
    return x.narrow(1, first, block_);
  }

  AttentionBlock block_of(const Pair& pair, const at::Tensor& q, const at::Tensor& kv) const {
    return {.q = rows(q, pair.query),
            .k = kv[0].narrow(1, pair.key, block_),
            .v = kv[1].narrow(1, pair.key, block_),
            .own = pair.own};
  }

  // Calls f for the chunk's blocks of keys in descending order, and for each of them for the
  // rank's blocks of queries at or after it, from the middle of the sequence outwards.
  template <typename F>
  void for_blocks(int chunk, F f) const {
    const std::int64_t blocks = chunk_ / block_;
    for (std::int64_t key = blocks - 1; key >= 0; --key) {
      for (std::int64_t i = blocks - 1; i >= 0; --i) {
        // The two blocks at the same distance from the middle.
        visit_pair(split_.early_chunk(rank_), i, chunk, key, f);
        visit_pair(split_.late_chunk(rank_), blocks - 1 - i, chunk, key, f);
      }
    }
  }

  template <typename F>
  void visit_pair(int query_chunk, std::int64_t query, int key_chunk, std::int64_t key, F f) const {
    const bool same = query_chunk == key_chunk;
    if (query_chunk < key_chunk || (same && query < key)) return;
    f(Pair{first_row(query_chunk) + query * block_, key * block_, same && query == key});
  }

  // One group of heads.
  void pass_back(int head_group, HeadRange range, const Attended& attended, const at::Tensor& dy,
                 const Heads& gradients, KeysBelow& below, Finished& finished) const {
    const auto queries = [&](const at::Tensor& x, int dim) {
      return x.narrow(dim, range.first * shared_, range.count * shared_);
    };
    const at::Tensor q = queries(heads_.q, 2);
    const at::Tensor y = queries(attended.y.view(heads_.q.sizes()), 2);
    const at::Tensor of_y = queries(dy.view(heads_.q.sizes()), 2);
    const at::Tensor log_sum = queries(attended.log_sum, 1);
    const at::Tensor dq = at::zeros(q.sizes(), q.options().dtype(at::kFloat));
    Keys keys(*this, range, head_group, below);
    for (int chunk = split_.late_chunk(rank_); chunk >= 0; --chunk) {
      const at::Tensor kv = keys.take(chunk);
      at::Tensor dkv = gradients_so_far(chunk, head_group, range);
      for_blocks(chunk, [&](const Pair& pair) {
        primitives(q).attention.attend_block_gradient(
            block_of(pair, q, kv), {rows(y, pair.query), log_sum.narrow(2, pair.query, block_)},
            rows(of_y, pair.query), rows(dq, pair.query), dkv[0].narrow(1, pair.key, block_),
            dkv[1].narrow(1, pair.key, block_));
      });
      send_gradients(chunk, head_group, range, std::move(dkv), gradients);
      finished.receive_until(position_of(head_group, chunk) - rank_ - 1);
    }
    queries(gradients.q, 2).copy_(dq);
  }

  // The gradients of a chunk's keys and values that the ranks before this one have made.
  at::Tensor gradients_so_far(int chunk, int head_group, HeadRange range) const {
    const int first = is_late(chunk) ? split_.owner(chunk) : split_.ranks - 1;
    if (rank_ < first)
      return receive(rank_ + 1, kGradientsSoFar, chunk, head_group, range, at::kFloat);
    return at::zeros(sizes_of(range), heads_.k.options().dtype(at::kFloat));
  }

  void send_gradients(int chunk, int head_group, HeadRange range, at::Tensor dkv,
                      const Heads& gradients) const {
    const int owner = split_.owner(chunk);
    if (rank_ > 0) return send(rank_ - 1, kGradientsSoFar, chunk, head_group, std::move(dkv));
    if (owner > 0) return send(owner, kFinishedGradients, chunk, head_group, std::move(dkv));
    write(chunk, range, dkv, gradients);
  }

  void write(int chunk, HeadRange range, const at::Tensor& dkv, const Heads& gradients) const {
    const auto to = [&](const at::Tensor& x) {
      return x.narrow(1, first_row(chunk), chunk_).narrow(2, range.first, range.count);
    };
    to(gradients.k).copy_(dkv[0]);
    to(gradients.v).copy_(dkv[1]);
  }

  std::array<std::int64_t, 5> sizes_of(HeadRange range) const {
    return {2, heads_.k.size(0), chunk_, range.count, heads_.k.size(3)};
  }

  // The order in which chunks of all groups of heads pass the ranks.
  std::int64_t position_of(int head_group, int chunk) const {
    return std::int64_t{head_group} * split_.chunks() + split_.chunks() - 1 - chunk;
  }

  MessageTag tag_of(Content content, int chunk, int head_group) const {
    MessageTag tag = tag_;
    tag.consumer = chunk;
    tag.micro_batch = static_cast<std::int32_t>(head_group * kNumContents + content);
    return tag;
  }
  void send(int peer, Content content, int chunk, int head_group, at::Tensor x) const {
    group_.send(peer, tag_of(content, chunk, head_group), std::move(x));
  }
  at::Tensor receive(int peer, Content content, int chunk, int head_group, HeadRange range,
                     at::ScalarType type) const {
    return group_.receive(peer, tag_of(content, chunk, head_group), sizes_of(range),
                          heads_.k.options().dtype(type));
  }

  const Heads& heads_;
  const ContextParallel& group_;
  const ContextSplit split_;
  const int rank_;
  const MessageTag tag_;
  const std::int64_t chunk_, block_, shared_;
};

}  // namespace

Attended ring_attend(const Heads& heads, const ContextParallel& group) {
  return Ring(heads, group).attend();
}

void ring_attend_gradient(const Heads& heads, const Attended& attended, const at::Tensor& dy,
                          const Heads& gradients, const ContextParallel& group) {
  Ring(heads, group).attend_gradient(attended, dy, gradients);
}

}  // namespace strata

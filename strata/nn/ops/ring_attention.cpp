#include "strata/nn/ops/ring_attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/nn/primitives/primitives.h"

namespace strata {
namespace {

enum What : std::int32_t { kKeys = 1, kGradients, kHome };

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
    Keys keys(*this, all, 0);
    for (int chunk = split_.late_chunk(rank_); chunk >= 0; --chunk) {
      const at::Tensor kv = keys.take(chunk);
      for_blocks(chunk, [&](const Pair& pair) {
        primitives(q).attention.attend_block(
            block_of(pair, heads_.q, kv),
            {rows(sum.y, pair.query), sum.log_sum.narrow(2, pair.query, block_)});
      });
    }
    return {sum.y.to(q.scalar_type()).view({q.size(0), q.size(1), q.size(2) * q.size(3)}),
            sum.log_sum};
  }

  void attend_gradient(const Attended& attended, const at::Tensor& dy,
                       const Heads& gradients) const {
    const std::int64_t count = heads_.k.size(2), groups = std::min(kRingHeadGroups, count);
    for (std::int64_t i = 0; i < groups; ++i)
      pass_back(range_of(i, groups), static_cast<int>(i), attended, dy, gradients);
    if (rank_ == 0) return;
    for (std::int64_t i = 0; i < groups; ++i)
      for (const int chunk : {split_.early_chunk(rank_), split_.late_chunk(rank_)})
        write(chunk, range_of(i, groups),
              receive(0, kHome, chunk, static_cast<int>(i), range_of(i, groups), at::kFloat),
              gradients);
  }

 private:
  // A block of the rank's queries and a block of a chunk's keys, as rows of the rank's queries and
  // of the chunk.
  struct Pair {
    std::int64_t query, key;
    bool own;
  };

  // Keys and values of the chunks in descending order, [2, B, chunk, heads, width] each.
  class Keys {
   public:
    Keys(const Ring& ring, HeadRange range, int turn) : ring_(ring), range_(range), turn_(turn) {}

    at::Tensor take(int chunk) {
      const int last = ring_.split_.ranks - 1, rank = ring_.rank_;
      // The last rank needs this rank's early chunk in its next step.
      if (rank < last && step_++ == last - rank) ring_.send(last, kKeys, rank, turn_, own(rank));
      const int owner = ring_.split_.owner(chunk);
      const at::Tensor kv = owner == rank
                                ? own(chunk)
                                : ring_.receive(rank == last ? owner : rank + 1, kKeys, chunk,
                                                turn_, range_, ring_.heads_.k.scalar_type());
      if (rank > 0 && owner != rank - 1) ring_.send(rank - 1, kKeys, chunk, turn_, kv);
      return kv;
    }

   private:
    // In one tensor, which other ranks may keep.
    at::Tensor own(int chunk) {
      at::Tensor& kv = own_[ring_.is_late(chunk) ? 1 : 0];
      if (!kv.defined()) {
        const auto part = [&](const at::Tensor& x) {
          return x.narrow(1, ring_.first_row(chunk), ring_.chunk_)
              .narrow(2, range_.first, range_.count);
        };
        kv = at::stack({part(ring_.heads_.k), part(ring_.heads_.v)});
      }
      return kv;
    }

    const Ring& ring_;
    HeadRange range_;
    int turn_;
    int step_ = 0;
    std::array<at::Tensor, 2> own_;
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
        pair_up(split_.early_chunk(rank_), i, chunk, key, f);
        pair_up(split_.late_chunk(rank_), blocks - 1 - i, chunk, key, f);
      }
    }
  }

  template <typename F>
  void pair_up(int query_chunk, std::int64_t query, int key_chunk, std::int64_t key, F f) const {
    const bool same = query_chunk == key_chunk;
    if (query_chunk < key_chunk || (same && query < key)) return;
    f(Pair{first_row(query_chunk) + query * block_, key * block_, same && query == key});
  }

  // One group of heads.
  void pass_back(HeadRange range, int turn, const Attended& attended, const at::Tensor& dy,
                 const Heads& gradients) const {
    const auto queries = [&](const at::Tensor& x, int dim) {
      return x.narrow(dim, range.first * shared_, range.count * shared_);
    };
    const at::Tensor q = queries(heads_.q, 2);
    const at::Tensor y = queries(attended.y.view(heads_.q.sizes()), 2);
    const at::Tensor of_y = queries(dy.view(heads_.q.sizes()), 2);
    const at::Tensor log_sum = queries(attended.log_sum, 1);
    const at::Tensor dq = at::zeros(q.sizes(), q.options().dtype(at::kFloat));
    Keys keys(*this, range, turn);
    for (int chunk = split_.late_chunk(rank_); chunk >= 0; --chunk) {
      const at::Tensor kv = keys.take(chunk);
      const at::Tensor dkv = begun(chunk, turn, range);
      for_blocks(chunk, [&](const Pair& pair) {
        primitives(q).attention.attend_block_gradient(
            block_of(pair, q, kv), {rows(y, pair.query), log_sum.narrow(2, pair.query, block_)},
            rows(of_y, pair.query), rows(dq, pair.query), dkv[0].narrow(1, pair.key, block_),
            dkv[1].narrow(1, pair.key, block_));
      });
      pass_on(chunk, turn, range, dkv, gradients);
    }
    queries(gradients.q, 2).copy_(dq);
  }

  // The gradients of a chunk's keys and values that the ranks before this one have made.
  at::Tensor begun(int chunk, int turn, HeadRange range) const {
    const int first = is_late(chunk) ? split_.owner(chunk) : split_.ranks - 1;
    if (rank_ < first) return receive(rank_ + 1, kGradients, chunk, turn, range, at::kFloat);
    return at::zeros(sizes_of(range), heads_.k.options().dtype(at::kFloat));
  }

  void pass_on(int chunk, int turn, HeadRange range, const at::Tensor& dkv,
               const Heads& gradients) const {
    const int owner = split_.owner(chunk);
    if (rank_ > 0) return send(rank_ - 1, kGradients, chunk, turn, dkv);
    if (owner > 0) return send(owner, kHome, chunk, turn, dkv);
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

  MessageTag tag_of(What what, int chunk, int turn) const {
    MessageTag tag = tag_;
    tag.consumer = chunk;
    tag.micro_batch = static_cast<std::int32_t>(turn * 4 + what);
    return tag;
  }
  void send(int peer, What what, int chunk, int turn, at::Tensor x) const {
    group_.send(peer, tag_of(what, chunk, turn), std::move(x));
  }
  at::Tensor receive(int peer, What what, int chunk, int turn, HeadRange range,
                     at::ScalarType type) const {
    return group_.receive(peer, tag_of(what, chunk, turn), sizes_of(range),
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

// A message has the same layout in both directions: the sender's or the receiver's tokens, and the
// heads of the other rank.
#include "strata/nn/ops/head_exchange.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <numeric>

#include "strata/base/errors.h"

namespace strata {
namespace {

class Exchange {
 public:
  Exchange(const PackedHeads& heads, std::int64_t samples, std::int64_t length,
           const ContextParallel& group)
      : heads_(heads),
        group_(group),
        samples_(samples),
        length_(length),
        per_head_(std::accumulate(heads.parts.begin(), heads.parts.end(), std::int64_t{0})),
        tag_(group.begin()) {}

  at::Tensor to_heads(const at::Tensor& x) const {
    const OwnHeads own = heads_of(group_.rank());
    for_peers([&](int peer) { group_.send(peer, tag_, part_of_heads(x, heads_of(peer))); });
    const at::Tensor all = at::empty({samples_, length_, columns(own)}, x.options());
    put_tokens(all, group_.rank(), part_of_heads(x, own));
    for_peers([&](int peer) { put_tokens(all, peer, receive(peer, own, x)); });
    return all;
  }

  at::Tensor to_tokens(const at::Tensor& x) const {
    const OwnHeads own = heads_of(group_.rank());
    for_peers([&](int peer) { group_.send(peer, tag_, part_of_tokens(x, peer)); });
    const at::Tensor all =
        at::empty({samples_, own_length(), columns({0, heads_.key_heads})}, x.options());
    put_heads(all, own, part_of_tokens(x, group_.rank()));
    for_peers([&](int peer) {
      const OwnHeads theirs = heads_of(peer);
      put_heads(all, theirs, receive(peer, theirs, x));
    });
    return all;
  }

 private:
  std::int64_t own_length() const { return length_ / group_.size(); }
  std::int64_t columns(const OwnHeads& heads) const {
    return heads.count * per_head_ * heads_.width;
  }
  OwnHeads heads_of(int rank) const { return own_heads(heads_.key_heads, rank, group_.size()); }

  // Every rank begins with its neighbour, so that no rank gets all first messages.
  template <typename F>
  void for_peers(F f) const {
    for (int i = 1; i < group_.size(); ++i) f((group_.rank() + i) % group_.size());
  }

  at::Tensor receive(int peer, const OwnHeads& heads, const at::Tensor& like) const {
    return group_.receive(peer, tag_, {samples_, own_length(), columns(heads)}, like.options());
  }

  // Calls f(columns of all heads, columns of `heads` alone) for each packed part.
  template <typename F>
  void for_parts(const OwnHeads& heads, F f) const {
    std::int64_t all = 0, own = 0;
    for (const std::int64_t part : heads_.parts) {
      const std::int64_t unit = part * heads_.width;
      f(all + heads.first * unit, own, heads.count * unit);
      all += heads_.key_heads * unit;
      own += heads.count * unit;
    }
  }

  at::Tensor part_of_heads(const at::Tensor& x, const OwnHeads& heads) const {
    std::vector<at::Tensor> parts;
    for_parts(heads, [&](std::int64_t from, std::int64_t, std::int64_t count) {
      parts.push_back(x.narrow(2, from, count));
    });
    return at::cat(parts, 2);
  }

  void put_heads(const at::Tensor& all, const OwnHeads& heads, const at::Tensor& x) const {
    for_parts(heads, [&](std::int64_t to, std::int64_t from, std::int64_t count) {
      all.narrow(2, to, count).copy_(x.narrow(2, from, count));
    });
  }

  at::Tensor part_of_tokens(const at::Tensor& x, int rank) const {
    std::vector<at::Tensor> parts;
    for (const TokenRange& tokens : own_tokens(group_.split(), rank, length_))
      parts.push_back(x.narrow(1, tokens.first, tokens.count));
    return at::cat(parts, 1);
  }

  void put_tokens(const at::Tensor& all, int rank, const at::Tensor& x) const {
    std::int64_t at = 0;
    for (const TokenRange& tokens : own_tokens(group_.split(), rank, length_)) {
      all.narrow(1, tokens.first, tokens.count).copy_(x.narrow(1, at, tokens.count));
      at += tokens.count;
    }
  }

  const PackedHeads& heads_;
  const ContextParallel& group_;
  const std::int64_t samples_, length_, per_head_;
  const MessageTag tag_;
};

}  // namespace

OwnHeads own_heads(std::int64_t key_heads, int rank, int ranks) {
  const std::int64_t first = key_heads * rank / ranks;
  return {first, key_heads * (rank + 1) / ranks - first};
}

at::Tensor tokens_to_heads(const at::Tensor& x, const PackedHeads& heads,
                           const ContextParallel& group) {
  return Exchange(heads, x.size(0), x.size(1) * group.size(), group).to_heads(x);
}

at::Tensor heads_to_tokens(const at::Tensor& x, const PackedHeads& heads,
                           const ContextParallel& group) {
  return Exchange(heads, x.size(0), x.size(1), group).to_tokens(x);
}

}  // namespace strata

#include "strata/train/mean_weights.h"

#include <algorithm>

#include "strata/comm/collectives.h"
#include "strata/device/account.h"

namespace strata {
namespace {

constexpr std::int64_t kCopiedPiece = 1 << 18;  // elements

// Calls f(weights, elements of the buffer) for pieces.
template <typename F>
void for_pieces(const MasterWeights& weights, const at::Tensor& buffer, F f) {
  const UnchargedScope uncharged;
  for (std::int64_t begin = 0; begin < buffer.numel(); begin += kCopiedPiece) {
    const std::int64_t numel = std::min(kCopiedPiece, buffer.numel() - begin);
    f(weights.narrow(begin, numel), buffer.narrow(0, begin, numel));
  }
}

}  // namespace

void copy_weights(const MasterWeights& from, const at::Tensor& to) {
  for_pieces(from, to,
             [](const MasterWeights& part, const at::Tensor& piece) { piece.copy_(part.whole()); });
}

void copy_weights(const at::Tensor& from, const MasterWeights& to) {
  for_pieces(to, from,
             [](const MasterWeights& part, const at::Tensor& piece) { part.assign(piece); });
}

at::Tensor MeanWeights::average(const Pin& pin) {
  at::Tensor mean = pin.gradient_shard();
  copy_weights(pin.master(), mean);
  if (replicas_.size() == 1) return mean;
  all_reduce_sum(replicas_, mean);
  return mean.div_(replicas_.size());
}

void MeanWeights::exchange_weights() {
  for (const int layer : store_.layers()) {
    if (store_.placement(layer).shard.size() == 0) continue;
    const Pin pin = store_.acquire(layer, kPinned);
    for_pieces(pin.master(), pin.gradient_shard(),
               [](const MasterWeights& part, const at::Tensor& other) {
                 const at::Tensor weights = part.whole().clone();
                 part.assign(other);
                 other.copy_(weights);
               });
  }
  uses_mean_ = !uses_mean_;
}

void MeanWeights::use_mean() {
  if (uses_mean_) return;
  for (const int layer : store_.layers())
    if (store_.placement(layer).shard.size() > 0) average(store_.acquire(layer, kPinned));
  exchange_weights();
}

void MeanWeights::use_own() {
  if (uses_mean_) exchange_weights();
}

MasterWeights MeanWeights::own_weights(const Pin& pin) const {
  return uses_mean_ ? MasterWeights{pin.gradient_shard()} : pin.master();
}

}  // namespace strata

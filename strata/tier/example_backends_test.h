/// Provides backends for tests: one that moves every byte away, and one that fails.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "strata/base/errors.h"
#include "strata/tier/layer_state.h"

namespace strata {

/// The device buffers of a kind that keep their contents between uses. Empty for weights that are
/// gathered from shards and for kinds that live on the host.
inline std::vector<FlatBuffer*> kept_buffers(LayerState& state, StateKind kind) {
  const ShardPlacement& placement = state.placement;
  std::vector<FlatBuffer*> buffers;
  const auto add = [&](FlatBuffer& buffer) {
    if (buffer.tensor().defined()) buffers.push_back(&buffer);
  };
  const bool on_host = placement.tiers.updates_on_host();
  if (on_host && kind != StateKind::kWeights && kind != StateKind::kGradients) return buffers;
  switch (kind) {
    case StateKind::kWeights:
      if (placement.whole_weights) add(state.weights);
      break;
    case StateKind::kWeightShard:
      add(state.weight_shard);
      break;
    case StateKind::kGradients:
      if (placement.whole_gradients || !on_host)
        add(placement.whole_gradients ? state.gradients : state.gradient_shard);
      break;
    case StateKind::kGradientShard:
      break;  // the same as the gradients
    case StateKind::kOptimizer:
      add(state.master);
      for (FlatBuffer& slot : state.slots) add(slot);
      break;
  }
  return buffers;
}

/// Keeps evicted bytes in memory of its own and overwrites the originals: a read without a pin gets
/// no number. A fetch copies the bytes back in finish().
class AwayBackend final : public StateBackend {
 public:
  struct Counts {
    int fetches = 0;
    int evictions = 0;
    int waits = 0;
  };

  /// `spoil`: overwrites the originals; false where peers may still read them.
  explicit AwayBackend(Counts* counts = nullptr, bool spoil = true)
      : counts_(counts ? counts : &own_), spoil_(spoil) {}

  std::unique_ptr<Transfer> fetch(LayerState& state, StateKind kind) override {
    ++counts_->fetches;
    const auto held = held_.find({state.layer, kind});
    if (held == held_.end()) return nullptr;  // it never left
    return std::make_unique<Call>([this, &state, kind] {
      ++counts_->waits;
      const auto parts = held_.extract({state.layer, kind});
      const std::vector<FlatBuffer*> buffers = kept_buffers(state, kind);
      for (std::size_t i = 0; i < buffers.size(); ++i)
        buffers[i]->install(parts.mapped()[i].clone());
    });
  }

  std::unique_ptr<Transfer> evict(LayerState& state, StateKind kind) override {
    ++counts_->evictions;
    std::vector<at::Tensor> parts;
    for (FlatBuffer* buffer : kept_buffers(state, kind)) {
      const at::Tensor bytes = buffer->remove();
      parts.push_back(bytes.clone());
      if (spoil_) spoil(bytes);
    }
    held_[{state.layer, kind}] = std::move(parts);
    return nullptr;
  }

 private:
  static void spoil(const at::Tensor& bytes) {
    if (at::isFloatingType(bytes.scalar_type())) {
      bytes.fill_(std::numeric_limits<double>::quiet_NaN());
    } else {
      bytes.fill_(0x5a5a);
    }
  }

  class Call final : public Transfer {
   public:
    explicit Call(std::function<void()> call) : call_(std::move(call)) {}
    Completion finish() override {
      call_();
      return {};
    }

   private:
    std::function<void()> call_;
  };

  Counts own_;
  Counts* counts_;
  bool spoil_;
  std::map<std::pair<int, StateKind>, std::vector<at::Tensor>> held_;
};

/// Fails once, at call number `countdown` of a kind, and passes all other calls to another backend.
class FaultyBackend final : public StateBackend {
 public:
  enum class Call : std::uint8_t { kFetch, kWait, kEvict };

  FaultyBackend(std::unique_ptr<StateBackend> below, Call failing, int countdown)
      : below_(std::move(below)), failing_(failing), countdown_(countdown) {}

  std::unique_ptr<Transfer> fetch(LayerState& state, StateKind kind) override {
    may_fail(Call::kFetch, state, kind);
    std::unique_ptr<Transfer> transfer = below_->fetch(state, kind);
    if (!transfer) return nullptr;
    return std::make_unique<FaultyTransfer>(*this, std::move(transfer), state, kind);
  }
  std::unique_ptr<Transfer> evict(LayerState& state, StateKind kind) override {
    may_fail(Call::kEvict, state, kind);
    return below_->evict(state, kind);
  }

 private:
  class FaultyTransfer final : public Transfer {
   public:
    FaultyTransfer(FaultyBackend& backend, std::unique_ptr<Transfer> transfer, LayerState& state,
                   StateKind kind)
        : backend_(backend), transfer_(std::move(transfer)), state_(state), kind_(kind) {}
    Completion finish() override {
      backend_.may_fail(Call::kWait, state_, kind_);
      return transfer_->finish();
    }

   private:
    FaultyBackend& backend_;
    std::unique_ptr<Transfer> transfer_;
    LayerState& state_;
    StateKind kind_;
  };

  void may_fail(Call call, const LayerState& state, StateKind kind) {
    if (call != failing_ || countdown_-- != 0) return;
    throw SystemError({.operation = "tier.faulty_backend",
                       .where = "layer " + std::to_string(state.layer) + ", " + name_of(kind),
                       .what = "the disk is gone",
                       .expected = "",
                       .got = "",
                       .fix = ""});
  }

  std::unique_ptr<StateBackend> below_;
  Call failing_;
  int countdown_;
};

}  // namespace strata

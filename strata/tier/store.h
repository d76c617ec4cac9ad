/// Holds the bytes of layers, one flat buffer each, and pins them for as long as an action needs
/// them. Where they come from is the backend's business.
///
/// Nothing reads or writes a layer's bytes but through a pin, and a pin names the kinds that it
/// is for; what nobody pins may be somewhere else.
///
/// Threads  a store belongs to one rank's thread.
/// Errors   InternalError: a layer or kind that isn't in the store; a release under a pin; a use
///          that the pin is not for. What backends throw: the kind is then away, and may be asked
///          for again.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strata/device/device.h"
#include "strata/schedule/trace.h"
#include "strata/tier/layer_state.h"
#include "strata/tier/pin.h"
#include "strata/tier/state_backend.h"

namespace strata {

class MemoryAccount;

/// When bytes that nobody pins leave the device.
enum class Residency : std::uint8_t {
  kUntilReleased,  ///< when the program says so
  kWhilePinned,    ///< at once: the least memory, and proof that nobody reads what he doesn't pin
};

class LayerStore {
 public:
  /// `host`: charged for what lives there; null: nobody.
  explicit LayerStore(std::unique_ptr<StateBackend> backend,
                      Residency residency = Residency::kUntilReleased, Device device = {},
                      MemoryAccount* host = nullptr)
      : LayerStore(std::move(backend), residency, Stream::compute(device), host) {}
  /// `compute`: where the rank's work is done; it waits for transfers.
  LayerStore(std::unique_ptr<StateBackend> backend, Residency residency, Stream compute,
             MemoryAccount* host = nullptr);
  LayerStore(LayerStore&&) = default;
  LayerStore& operator=(LayerStore&&) = delete;
  ~LayerStore();

  /// Makes the (zeroed) buffers of a layer. A tied weight whose owner was inserted before is a view
  /// of the owner's bytes; otherwise its use gets a replica of its own, which stays.
  void insert(int layer, const LayerLayout& layout, const ShardPlacement& placement);

  void prefetch(int layer, StateKinds kinds);
  Pin acquire(int layer, StateKinds kinds);   ///< waits for what isn't there
  void release(int layer, StateKinds kinds);  ///< may leave

  /// The same without waiting for what is under way on the host: nothing may touch the bytes before
  /// `pending` have happened.
  Pin acquire(int layer, StateKinds kinds, std::vector<Completion>& pending);

  /// For shards of which only copies are wanted: where they travel (Pin::shards_travel()), the copies wait.
  Pin acquire_to_copy(int layer, StateKinds kinds);

  /// Kinds of a layer that is updated on the host are complete when `event` has happened; weights on the
  /// device are then the past, and are fetched again. Of what lives on disk, what the last pin has left:
  /// nothing was pinned since.
  void written(int layer, StateKinds kinds, const Completion& event);

  /// What the last pin of a kind was for reads it until `event` has happened.
  void read_until(int layer, StateKind kind, const Completion& event);

  /// Waits for what is done with a kind of a layer: where the device has it, the device does.
  void wait(int layer, StateKind kind, const Completion& event) {
    wait(entry(layer).state, kind, event);
  }

  /// The step offloads no more gradients: the last one's memory is given back behind its copy.
  void end_offload() { backend_->end_offload(); }

  /// The last part of it: what the device has of such a layer's weights is the past.
  void outdate_weights(int layer);

  /// For backends: what there is of a layer.
  LayerState& state(int layer) { return entry(layer).state; }

  /// How long the rank has waited for a kind, since the store was made.
  double waited_seconds(StateKind kind) const { return waited_[static_cast<int>(kind)]; }

  /// From now on waits are written down, too, within the action that waits. Null: no longer.
  void trace_waits(TraceLog* trace) { trace_ = trace; }

  const LayerLayout& layout(int layer) const { return *entry(layer).state.layout; }
  const ShardPlacement& placement(int layer) const { return entry(layer).state.placement; }
  bool contains(int layer) const { return entries_.contains(layer); }
  std::vector<int> layers() const;  ///< ascending

 private:
  friend class Pin;
  enum class Where : std::uint8_t { kAway, kComing, kHere, kLeaving };
  struct Status {
    Where where = Where::kAway;
    int pins = 0;
    std::unique_ptr<Transfer> transfer;
  };
  struct Entry {
    LayerState state;
    std::array<Status, kNumStateKinds> status;
    std::vector<int> owners;  // layers whose weights this one uses
  };

  Entry& entry(int layer);
  const Entry& entry(int layer) const;
  bool shards_travel(const LayerState& state) const;
  void bring_shard(LayerState& state, StateKind kind, std::int64_t begin, const at::Tensor& to);
  void offload_gradients(LayerState& state, std::int64_t begin, const at::Tensor& from);
  void begin_gradients(LayerState& state) { backend_->begin_gradients(state); }
  StateKinds kinds_of(const Entry& entry, StateKinds requested) const;
  void start(Entry& entry, StateKind kind);
  void finish(Entry& entry, StateKind kind);
  void leave(Entry& entry, StateKind kind);
  void unpin(int layer, StateKinds kinds) noexcept;
  void wait(const LayerState& state, StateKind kind, const Completion& event);
  void waited(const LayerState& state, StateKind kind, double begin_seconds);

  std::unique_ptr<StateBackend> backend_;
  Residency residency_;
  std::array<double, kNumStateKinds> waited_{};
  TraceLog* trace_ = nullptr;
  MemoryAccount* host_;
  Stream stream_;  // where the rank computes: it waits for transfers
  std::map<int, Entry> entries_;
  std::map<std::string, std::pair<int, std::size_t>> owners_of_ties_;  // layer and weight
  std::exception_ptr failed_;  // an eviction at the end of a pin: the next call throws it
};

}  // namespace strata

/// Holds the bytes of layers, one flat buffer for each kind, and pins them while an action needs
/// them.
///
/// All code reads and writes a layer's bytes through a pin, and a pin names the kinds that it is
/// for; a kind that is not pinned may be elsewhere. Each kind of a layer has one home, chosen when
/// the layer is inserted (Home in layer_state.h), and one presence, whose transitions are checked
/// (presence.h).
///
/// Threads  a store belongs to one rank's thread.
/// Errors   InternalError: a layer, kind or backend that the store does not have; a release of a
///          pinned kind; a use that the pin is not for. The errors of backends: the kind is then
///          away, and may be acquired again.
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
#include "strata/tier/disk_residency.h"
#include "strata/tier/host_backend.h"
#include "strata/tier/layer_state.h"
#include "strata/tier/peer_backend.h"
#include "strata/tier/pin.h"
#include "strata/tier/presence.h"
#include "strata/tier/state_backend.h"

namespace strata {

class MemoryAccount;

/// When bytes that are not pinned leave the device.
enum class Residency : std::uint8_t {
  kUntilReleased,  ///< at release()
  kWhilePinned,    ///< with the last pin: the least memory, and a test that all uses have a pin
};

/// The backends of a store; backend_of() in store.cpp maps each home to one. Null: no layer
/// needs it.
/// The disk's transfers wait for the link's copies, so its backend is destroyed before
/// the host's.
struct Backends {
  std::unique_ptr<StateBackend> device = resident_backend();
  std::unique_ptr<HostBackend> host = {};
  std::unique_ptr<DiskResidency> disk = {};
  std::unique_ptr<PeerBackend> peers = {};
};

class LayerStore {
 public:
  /// `host`: charged for bytes that live in host memory; null: they are not accounted for.
  explicit LayerStore(Backends backends = {}, Residency residency = Residency::kUntilReleased,
                      Device device = {}, MemoryAccount* host = nullptr)
      : LayerStore(std::move(backends), residency, Stream::compute(device), host) {}
  /// `compute`: the stream of the rank's work, which waits for transfers.
  LayerStore(Backends backends, Residency residency, Stream compute, MemoryAccount* host = nullptr);
  LayerStore(LayerStore&&) = default;
  LayerStore& operator=(LayerStore&&) = delete;
  ~LayerStore();

  /// Makes the zeroed buffers of a layer. A tied weight is a view of its owner's bytes if the owner
  /// was inserted before; otherwise it is a replica of its own, which always stays on the device.
  void insert(int layer, const LayerLayout& layout, const ShardPlacement& placement);

  void prefetch(int layer, StateKinds kinds);
  Pin acquire(int layer, StateKinds kinds);   ///< waits until the bytes have arrived
  void release(int layer, StateKinds kinds);  ///< the bytes may leave

  /// The same without waiting for transfers to host memory and for updates there: the caller does
  /// not access the bytes before pending() have ended.
  Pin acquire_unwaited(int layer, StateKinds kinds);
  std::vector<Completion> pending(const Pin& pin);

  /// For shards that are only copied: if they travel (Pin::shards_travel()), the copies wait
  /// instead of the rank.
  Pin acquire_to_copy(int layer, StateKinds kinds);

  /// The work that ends with `event` writes these kinds. Kinds on a disk are not pinned now; the
  /// work writes the bytes that the last pin has left. If the kinds include the weight shard, the
  /// device's copy of the weights is old and is fetched again.
  void written(int layer, StateKinds kinds, const Completion& event);

  /// The last pin of the kind was for work that reads it until `event` has ended.
  void read_until(int layer, StateKind kind, const Completion& event);

  /// Waits for an event that completes a kind. The device waits if the kind lives there, else the
  /// rank.
  void wait(int layer, StateKind kind, const Completion& event) {
    wait(entry(layer).state, kind, event);
  }

  /// The step offloads no more gradients: the memory of the last one is freed after its copy.
  void end_offload();

  /// The device's copy of a layer's weights is old and is fetched again.
  void outdate_weights(int layer);

  /// For backends.
  LayerState& state(int layer) { return entry(layer).state; }

  /// Seconds that the rank has waited for a kind since the store was made.
  double waited_seconds(StateKind kind) const { return waited_[static_cast<int>(kind)]; }

  /// Records waits, within the action that waits, in `trace`. Null: stops.
  void trace_waits(TraceLog* trace) { trace_ = trace; }

  const LayerLayout& layout(int layer) const { return *entry(layer).state.layout; }
  const ShardPlacement& placement(int layer) const { return entry(layer).state.placement; }
  bool contains(int layer) const { return entries_.contains(layer); }
  std::vector<int> layers() const;  ///< ascending

 private:
  friend class Pin;
  struct Entry {
    LayerState state;
    std::array<Presence, kNumStateKinds> presences = {};
    std::vector<int> owners = {};  // layers whose weights this one uses
    Presence& presence(StateKind kind) { return presences[static_cast<int>(kind)]; }
  };

  Entry& entry(int layer);
  const Entry& entry(int layer) const;
  StateBackend* backend_of(Home home) const;
  HostBackend& host() const;
  bool shards_travel(const LayerState& state) const;
  void bring_shard(LayerState& state, StateKind kind, std::int64_t begin, const at::Tensor& to);
  void offload_gradients(LayerState& state, std::int64_t begin, const at::Tensor& from);
  void begin_gradients(LayerState& state);
  StateKinds kinds_of(const Entry& entry, StateKinds requested) const;
  void start(Entry& entry, StateKind kind);
  void finish(Entry& entry, StateKind kind);
  void leave(Entry& entry, StateKind kind);
  void unpin(int layer, StateKinds kinds) noexcept;
  void wait(const LayerState& state, StateKind kind, const Completion& event);
  void waited(const LayerState& state, StateKind kind, double begin_seconds);

  Backends backends_;
  Residency residency_;
  std::array<double, kNumStateKinds> waited_{};
  TraceLog* trace_ = nullptr;
  MemoryAccount* host_account_;
  Stream stream_;  // of the rank's work: it waits for transfers
  std::map<int, Entry> entries_;
  std::map<std::string, std::pair<int, std::size_t>> owners_of_ties_;  // layer and weight
  std::exception_ptr failed_;  // of an eviction at the end of a pin: the next acquire() throws it
};

}  // namespace strata

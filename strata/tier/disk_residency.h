/// Moves kinds of layers' states between files of chunks and staging buffers in host memory. A kind
/// is in a staging buffer while it is pinned, and is written when it has changed.
///
/// No call waits. A pin gets a staging buffer whose read has started, and the write of an update
/// starts when the update has ended: each transfer continues the work that it depends on
/// (completion.h). So the rank reads layer k + 1, updates layer k and writes layer k - 1 at the
/// same time.
///
/// Gradients have their own file and staging buffers, and no commit includes them. After
/// forget_gradients() a gradient starts from zeros instead of a read.
///
/// A commit makes the states that the last step has written the states that the next run finds, on
/// all ranks or on none. It starts after the writes of its step, and the writes of the next step
/// start after all ranks have committed.
///
/// Source   Rajbhandari et al. 2021 (ZeRO-Infinity).
/// Threads  a rank's. Transfers start on the thread that ends the work they depend on; commits run
///          on an executor. A device's events cannot call back, so a second executor waits for
///          them.
/// Cost     host memory: disk_staging(). A step and layer: one read and one write of the states and
///          of the weights that are updated with them, and a read of the weights for each fetch.
/// Errors   UserError: what ChunkFile refuses. InternalError: more pinned layers than staging
///          buffers; a write of a kind that no pin has left. A completion has the error of the
///          disk; the files then hold the last commit.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "strata/base/executor.h"
#include "strata/base/monitor.h"
#include "strata/base/track_trace.h"
#include "strata/disk/chunk_file.h"
#include "strata/disk/staging.h"
#include "strata/tier/layer_state.h"
#include "strata/tier/staging_ring.h"
#include "strata/tier/state_backend.h"

namespace strata {

struct DiskFiles {
  std::unique_ptr<ChunkFile> states;     ///< ChunkTable::bytes: part of commits
  std::unique_ptr<ChunkFile> gradients;  ///< ChunkTable::gradients; null: no gradients on the disk
};

class DiskResidency final : public StateBackend {
 public:
  /// `layers`: the rank's layers on the disk, by number. `host`: charged for the staging buffers;
  /// null: they are not accounted for. `agree` returns when all ranks have called it; it is called
  /// on the backend's executor. `trace`, of reads and writes, outlives the backend. `device`: the
  /// device that copies from the staging buffers.
  DiskResidency(
      DiskFiles files, const std::map<int, LayerOnDisk>& layers, MemoryAccount* host,
      std::function<void()> agree = [] {}, TrackTrace* trace = nullptr, Device device = {});
  ~DiskResidency() override;  ///< waits until all transfers have ended
  DiskResidency(const DiskResidency&) = delete;
  DiskResidency& operator=(const DiskResidency&) = delete;

  /// Kinds with Home::kDisk: the buffers are in a staging buffer from fetch() to evict().
  std::unique_ptr<Transfer> fetch(LayerState& state, StateKind kind) override;
  std::unique_ptr<Transfer> evict(LayerState& state, StateKind kind) override;

  /// Starts to write the bytes that the last pin has left in the staging buffer, when `updated` has
  /// ended. The kind is away and was not fetched since. Ends with the write.
  Completion store(LayerState& state, StateKind kind, const Completion& updated);

  /// Returns a staging buffer that begins with the layer's weights when its `complete` have ended.
  /// The caller adds the completion of its reads to `busy`.
  StagingBuffer& stage_weights(LayerState& state);

  /// The bytes of the last pin are read until `event` has ended: the staging buffer is reused
  /// later.
  void read_until(LayerState& state, StateKind kind, const Completion& event);

  /// The layer's gradients on the disk are old: the next fetch of them gives zeros.
  void forget_gradients(LayerState& state);

  /// Adds weights that live in host memory to the next commit. Until `state.busy` has ended they
  /// may be read, and not written.
  void keep(LayerState& state);

  /// Reads such weights from the last commit; waits.
  void restore(LayerState& state);

  /// Starts to commit the writes so far. The completion has the error, if any.
  Completion commit(std::int64_t step, std::string user_text);

  struct Use {
    std::int64_t bytes_read = 0;
    std::int64_t bytes_written = 0;
    double read_seconds = 0;   ///< with at least one read in progress
    double write_seconds = 0;  ///< with at least one write or commit in progress
  };
  Use use() const;
  const ChunkFile& file() const { return *files_.states; }

 private:
  // A kind of a layer on the disk.
  struct Chunk {
    int number = -1;          // in the kind's file; -1: none
    std::int64_t offset = 0;  // in a staging buffer
    bool stored = false;      // the file has its bytes, or will have them
  };
  using Chunks = std::array<Chunk, kNumStateKinds>;
  // The time with transfers in progress, in one direction.
  struct Busy {
    double seconds = 0;
    double until = 0;
  };

  bool keeps(const LayerState& state) const;
  Chunk& chunk(const LayerState& state, StateKind kind) {
    return chunks_.at(state.layer)[static_cast<int>(kind)];
  }
  ChunkFile& file_of(StateKind kind) {
    return kind == StateKind::kGradientShard ? *files_.gradients : *files_.states;
  }
  StagingRing& ring_of(StateKind kind) {
    return kind == StateKind::kGradientShard ? gradients_ : updates_;
  }
  at::Tensor part_of(const StagingBuffer& buffer, const LayerState& state, StateKind kind);
  Completion read(StagingBuffer& buffer, LayerState& state, StateKind kind);
  Completion write(LayerState& state, StateKind kind, at::Tensor bytes,
                   std::vector<Completion> after);
  Completion ended(std::vector<Completion> work);
  Completion under_way(Completion transfer);
  Completion timed(TrackKind way, int layer, at::Tensor used, const Completion& transfer);
  void moved(TrackKind way, int layer, double begin_seconds);

  DiskFiles files_;
  std::map<int, Chunks> chunks_;  // by layer
  std::shared_ptr<void> copies_;  // the charge for the file's own copy buffers
  StagingRing updates_, fetches_, gradients_;
  std::function<void()> agree_;
  Monitor<Busy> reading_, writing_;
  TrackTrace* trace_;
  std::vector<Completion> under_way_;  // transfers in progress, and some that have ended
  std::vector<Completion> writes_;     // since the last commit
  Completion committed_;               // the last commit; writes start after it
  // Destroyed first: their tasks use the members above.
  std::unique_ptr<Executor> device_waits_;  // null: there was no event of a device
  Executor commits_{{.name = "disk commit"}};
};

}  // namespace strata

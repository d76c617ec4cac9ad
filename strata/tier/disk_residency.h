/// Keeps layers' optimizer states, and weights and gradients that live neither on the device nor on the
/// host, in files of chunks: they are brought to the host while somebody pins them, and go back when
/// they were written.
///
/// Nothing here waits: a pin begins with a staging buffer whose bytes are on their way, and an update's write
/// begins when the update has run. A transfer continues the work that it comes after (completion.h).
/// Reading layer k + 1, updating k and writing k - 1 overlap; what did not change is not written.
///
/// Gradients have a file of their own, which no commit waits for. What a step makes of one goes to a staging buffer
/// and from there to the disk; after forget_gradients() the next staging buffer begins with zeros, not with a read.
///
/// A commit makes the states that the last step has left the ones that the next run finds, on all ranks
/// or on none: it comes after the step's writes, and no write of a later step begins before every rank
/// has committed.
///
/// Source   Rajbhandari et al. 2021 (ZeRO-Infinity).
/// Threads  a rank's; transfers start on the thread that ends what they come after, and commits run on an
///          executor. Only where a device copies from the staging buffers does a second executor wait for its events,
///          which cannot call back.
/// Cost     host memory as disk_staging() says; a step and layer: states in and out once, weights that
///          are updated here with them, and in once for each fetch.
/// Errors   UserError: what ChunkFile refuses. A completion carries what the disk fails with: the file
///          then holds the last commit.
#pragma once

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
  std::unique_ptr<ChunkFile> states;     ///< ChunkTable::bytes: what commits keep
  std::unique_ptr<ChunkFile> gradients;  ///< ChunkTable::gradients; null: none lives there
};

class DiskResidency {
 public:
  /// `layers`: by number, what the rank keeps of each. `staging`: charged to `host` (null: nobody).
  /// `agree`: returns when all ranks have called it; called on a thread of the backend's. `trace`, of
  /// reads and writes, outlives the backend. `device`: what copies from its staging buffers.
  DiskResidency(
      DiskFiles files, const std::map<int, LayerOnDisk>& layers, MemoryAccount* host,
      std::function<void()> agree = [] {}, TrackTrace* trace = nullptr, Device device = {});
  ~DiskResidency();  ///< when all transfers have ended
  DiskResidency(const DiskResidency&) = delete;
  DiskResidency& operator=(const DiskResidency&) = delete;

  /// Starts to bring a kind to a staging buffer, and puts its buffers there: from on disk to staged. It has arrived
  /// when the completion ends.
  Completion stage(LayerState& state, StateKind kind);

  /// Takes the buffers out of the staging buffer: from staged to on disk.
  void unstage(LayerState& state, StateKind kind);

  /// Starts to write what the last pin has left in the staging buffer when `updated` has ended; the kind is on
  /// disk, and was not staged since. Ends with the write.
  Completion store(LayerState& state, StateKind kind, const Completion& updated);

  /// A staging buffer that has the layer's weights in front when its `complete` have ended. The caller adds what
  /// reads them to its `busy`.
  StagingBuffer& stage_weights(LayerState& state);

  /// What was staged of a kind is read until `event` ends: its staging buffer is filled again after it.
  void read_until(LayerState& state, StateKind kind, const Completion& event);

  /// What the disk has of the layer's gradients is the past: they are zero when they are staged next.
  void forget_gradients(LayerState& state) { place(state).gradients.stored = false; }

  /// Adds weights that live on the host to the next commit. They may be read meanwhile, and written
  /// after `state.busy`.
  void keep(LayerState& state);

  /// Reads the same back, from the last commit; waits.
  void restore(LayerState& state);

  /// Commits what was written so far, alongside the rank; the completion carries an error.
  Completion commit(std::int64_t step, std::string user_text);

  struct Use {
    std::int64_t bytes_read = 0;
    std::int64_t bytes_written = 0;
    double read_seconds = 0;   ///< in which there was a read, of fetches or updates
    double write_seconds = 0;  ///< the same of writes, commits included
  };
  Use use() const;
  const ChunkFile& file() const { return *files_.states; }

 private:
  // A kind of a layer between stage() and unstage(), or not.
  enum class Where : std::uint8_t { kOnDisk, kStaged };
  struct Part {
    int chunk = -1;
    Where where = Where::kOnDisk;
    bool stored = false;  // a write was started, ever
  };
  struct Place {
    Part weights, states, gradients;
    std::int64_t weight_bytes = 0;  // in a staging buffer, in front of the states
    Part& part(StateKind kind) {
      if (kind == StateKind::kGradientShard) return gradients;
      return kind == StateKind::kWeightShard ? weights : states;
    }
  };
  // The time in which the disk had something to do, one way.
  struct Busy {
    double seconds = 0;
    double until = 0;
  };

  bool has_weights_on_host(const LayerState& state) const;
  Place& place(const LayerState& state) { return places_.at(state.layer); }
  // Where a kind lies, and what it passes.
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
  std::map<int, Place> places_;
  std::shared_ptr<void> copies_;  // the charge for blocks of the file's own
  StagingRing updates_, fetches_, gradients_;
  std::function<void()> agree_;
  Monitor<Busy> reading_, writing_;
  TrackTrace* trace_;
  std::vector<Completion> under_way_;  // transfers, less those that were seen to have ended
  std::vector<Completion> writes_;     // since the last commit
  Completion committed_;               // the last commit: writes come after it
  // Last: their tasks use what is above.
  std::unique_ptr<Executor> device_waits_;  // null: no device copied from a staging buffer yet
  Executor commits_{{.name = "disk commit"}};
};

}  // namespace strata

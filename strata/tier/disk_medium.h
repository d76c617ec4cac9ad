/// Keeps layers' optimizer states, and weights that live neither on the device nor on the host, in a
/// file of chunks: they are brought to the host while somebody leases them, and go back when they were
/// written.
///
/// Nothing here waits: a lease begins with a slab whose bytes are on their way, and an update's write
/// begins when the update has run. Reading layer k + 1, updating k and writing k - 1 overlap; what did
/// not change is not written.
///
/// A commit makes the states that the last step has left the ones that the next run finds, on all ranks
/// or on none: it follows the step's writes in the queue of writes, and no write of a later step begins
/// before every rank has committed.
///
/// Source   Rajbhandari et al. 2021 (ZeRO-Infinity).
/// Threads  a rank's; reads, fetches and writes run on a lane each.
/// Cost     host memory as disk_staging() says; a step and layer: states in and out once, weights that
///          are updated here with them, and in once for each fetch.
/// Errors   UserError: what ChunkFile refuses. What the disk fails with, whoever waits for it: the file
///          then holds the last commit.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "strata/base/executor.h"
#include "strata/base/lane_trace.h"
#include "strata/disk/chunk_file.h"
#include "strata/disk/staging.h"
#include "strata/tier/layer_state.h"
#include "strata/tier/medium.h"
#include "strata/tier/slab_ring.h"

namespace strata {

class DiskMedium final : public Medium {
 public:
  /// `layers`: by number, what the rank keeps of each. `staging`: charged to `host` (null: nobody).
  /// `agree`: returns when all ranks have called it; called on a thread of the medium's. `trace`, of
  /// reads and writes, outlives the medium. `device`: what copies from its slabs.
  DiskMedium(
      std::unique_ptr<ChunkFile> file, const std::map<int, LayerOnDisk>& layers,
      MemoryAccount* host, std::function<void()> agree = [] {}, LaneTrace* trace = nullptr,
      std::unique_ptr<Medium> below = device_medium(), Device device = {});
  ~DiskMedium() override;

  std::unique_ptr<Transfer> fetch(LayerState& state, StateKind kind) override;
  std::unique_ptr<Transfer> evict(LayerState& state, StateKind kind) override;
  Completion written(LayerState& state, StateKind kind, const Completion& event) override;

  /// Hands a layer's weights, which live on disk, to `copy`: bytes on the host that are complete, and
  /// may be read, behind the events. It returns when they have been.
  using CopyWeights =
      std::function<Completion(const at::Tensor& bytes, std::vector<Completion> after)>;
  Completion pass_weights(LayerState& state, const CopyWeights& copy);

  /// What is leased of a layer is read until then: its slab is filled again behind it.
  void read_until(LayerState& state, const Completion& event);

  /// Adds weights that live on the host to the next commit. They may be read meanwhile, and written
  /// behind `state.busy`.
  void keep(LayerState& state);

  /// Reads the same back, from the last commit; waits.
  void restore(LayerState& state);

  /// Commits what was written so far; happens beside the rank, and so fails there.
  Completion commit(std::int64_t step, std::string user_text);

  struct Use {
    std::int64_t bytes_read = 0;
    std::int64_t bytes_written = 0;
    double read_seconds = 0;   ///< of the lanes' time, fetches and updates added
    double write_seconds = 0;  ///< the same, commits included
  };
  Use use() const;
  const ChunkFile& file() const { return *file_; }

 private:
  struct Place {
    LayerChunks chunks;
    std::int64_t weight_bytes = 0;  // in a slab, in front of the states
    bool stored[2] = {};            // weights, states: a write was submitted, ever
  };
  bool has_weights_on_host(const LayerState& state) const;
  Place& place(const LayerState& state) { return places_.at(state.layer); }
  at::Tensor part_of(const Slab& slab, const LayerState& state, StateKind kind);
  Completion read(Executor& lane, Slab& slab, LayerState& state, StateKind kind);
  Completion write(LayerState& state, StateKind kind, at::Tensor bytes,
                   std::vector<Completion> after);
  void moved(LaneKind lane, int layer, double begin_seconds);

  std::unique_ptr<ChunkFile> file_;
  std::map<int, Place> places_;
  std::shared_ptr<void> copies_;  // the charge for blocks of the file's own
  SlabRing updates_, fetches_;
  std::function<void()> agree_;
  std::atomic<double> read_seconds_ = 0, write_seconds_ = 0;
  LaneTrace* trace_;
  std::unique_ptr<Medium> below_;
  Executor reads_{{.name = "disk read"}}, fetch_reads_{{.name = "disk fetch"}},
      writes_{{.name = "disk write"}};  // last: their tasks use what is above
};

}  // namespace strata

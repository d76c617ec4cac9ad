/// Joins ranks: point-to-point messages, barrier, sums in rank order; and the groups of a mesh. A
/// value passed as an argument, never a global; collectives on tensors are in comm/collectives.h.
///
/// In a group of one, collectives return at once, and send and receive are bugs.
///
/// If a device runs asynchronously, a message carries the event after which its bytes are complete,
/// and the receiver's stream waits for it. No call waits for a device, except for bytes that leave
/// or enter a process through host memory.
///
/// Threads  one Group object belongs to one rank; different ranks' objects are used concurrently.
/// Errors   Cancelled when another rank failed: only the first error is reported.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strata/comm/communicators.h"
#include "strata/comm/message.h"
#include "strata/comm/rank_device.h"
#include "strata/comm/shared_buffer.h"
#include "strata/device/device.h"
#include "strata/layout/mesh.h"

namespace strata {

class Error;
class MemoryAccount;
class Mailboxes;

class Group {
 public:
  /// `members`: world ranks, ascending, including `rank`. `account` (may be null) is charged for
  /// received tensors. `device`: where the rank's tensors are.
  Group(std::shared_ptr<Mailboxes> mailboxes, std::vector<int> members, int world_rank,
        std::uint64_t id, MemoryAccount* account, Device device = {});
  /// `device`, `communicators`: shared by all groups of the rank; null: created here.
  Group(std::shared_ptr<Mailboxes> mailboxes, std::vector<int> members, int world_rank,
        std::uint64_t id, MemoryAccount* account, std::shared_ptr<RankDevice> device,
        std::shared_ptr<Communicators> communicators = nullptr);

  /// Not copyable: a copy would number its collectives like the original.
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  Group(Group&&) = default;
  Group& operator=(Group&&) = default;

  int rank() const { return rank_; }  ///< within the group
  int size() const { return static_cast<int>(members_.size()); }
  int world_rank(int rank) const { return members_[rank]; }
  Device device() const { return device_->device(); }  ///< this rank's
  RankDevice& rank_device() const { return *device_; }

  /// A group of some ranks of this group, including this one, in ascending order. Every member
  /// creates it with the same arguments, without communication; `purpose` distinguishes groups of
  /// the same ranks. What its ranks send counts for this group, too.
  Group subgroup(const std::vector<int>& ranks, const std::string& purpose) const;

  /// Bytes of tensors and numbers that this rank has sent in this group and its subgroups, one copy
  /// for each receiver. Bytes that a peer reads in place count like those that move, so threads and
  /// processes count the same.
  std::int64_t sent_bytes() const { return *sent_bytes_; }
  /// Adds what a communicator sends.
  void count_sent(std::int64_t bytes) { *sent_bytes_ += bytes; }
  /// From now on what is sent in this group does not count for the group that created it.
  void count_alone() { sent_bytes_ = std::make_shared<std::atomic<std::int64_t>>(0); }

  /// Sends a tensor to `peer`; never waits. Ranks of one process and device share the storage, so
  /// the sender must not write to it again. The sender is charged until the receiver takes the
  /// message.
  void send(int peer, const MessageTag& tag, at::Tensor tensor);

  /// Waits for the message and charges its bytes to this rank's account.
  at::Tensor receive(int peer, const MessageTag& tag);

  /// Lets `peer` read a tensor in place: like send, but the bytes stay the sender's, which must not
  /// write to them before a later message confirms that the peer has read them. For bytes on a
  /// device, before_write() checks that within a process and makes this rank's stream wait for the
  /// readers. `ready`: the event after which a device's bytes are complete; default: the work
  /// already on its stream.
  void export_buffer(int peer, const MessageTag& tag, at::Tensor tensor,
                     const Completion& ready = {});
  ImportedBuffer import_buffer(int peer, const MessageTag& tag);
  void before_write(const at::Tensor& bytes);

  /// Whether a message of `peer` is here: to receive or import it would not wait.
  bool has_arrived(int peer, const MessageTag& tag) const;

  /// Whether `peer` reads large tensors in place: it is on this machine and may read this process's
  /// memory.
  bool reads_in_place(int peer) const;

  void barrier();

  /// Reports what this rank is about to do, e.g. ("forward", 17, 4), or to receive, ("activation",
  /// 17, 4). Ranks that wait for it too long report that (transport/watchdog.h).
  void report_progress(const char* what, int position = -1, int micro_batch = -1);

  /// Ends every rank's wait for this failed rank. A rank calls it before it unwinds, because its
  /// destructors may wait for a device that waits for ranks that wait for this one.
  void fail(const Error& error);

  /// Sums over ranks in rank order: the same bits on every rank and for any timing.
  void all_reduce(std::span<double> values);

  /// A tag for the next collective: ranks of a group start them in the same order.
  MessageTag next_collective();

  /// How the ranks exchange device tensors. Collective, once: the ranks send each other their
  /// devices.
  ExchangeWay exchange_way();
  /// Requires exchange_way() kCommunicator. Collective, once.
  Communicator& communicator();
  /// Ends the communicators of all groups of the rank, after their enqueued work. Collective over
  /// the world.
  void finish_communicators();

 private:
  Address to(int peer, const MessageTag& tag) const;
  Address from(int peer, const MessageTag& tag) const;
  void post(int peer, const MessageTag& tag, at::Tensor tensor, bool exported,
            const Completion& ready);
  void post(int peer, const MessageTag& tag, std::vector<double> numbers);

  std::shared_ptr<Mailboxes> mailboxes_;
  std::vector<int> members_;
  int rank_ = 0;
  std::uint64_t id_ = 0;
  MemoryAccount* account_ = nullptr;
  std::shared_ptr<RankDevice> device_;
  // shared by all groups of the rank; null on a CPU
  std::shared_ptr<Communicators> communicators_;
  std::uint32_t collectives_ = 0;
  // shared with subgroups, which other threads of the rank may use
  std::shared_ptr<std::atomic<std::int64_t>> sent_bytes_ =
      std::make_shared<std::atomic<std::int64_t>>(0);
};

/// A group of one.
std::unique_ptr<Group> single_rank();

/// The groups of a rank of a mesh. Ranks that share one set of ZeRO shards are adjacent among those
/// with the same weights (hybrid sharding): `shard` joins them, `replica` joins the ranks that hold
/// the same shard.
struct MeshGroups {
  Mesh mesh;
  Group world;
  /// the ranks that differ from this one on one axis only; each counts its bytes alone
  PerAxis<Group> lines;
  /// the ranks that hold the same weights, along dp and cp: they add their gradients
  Group weights;
  Group shard;    ///< part of `weights`
  Group replica;  ///< part of `weights`, across shard groups

  Group& operator[](Axis axis) { return lines[axis]; }
  const Group& operator[](Axis axis) const { return lines[axis]; }
};

/// `shard_ranks` divides mesh.weight_ranks(); 0: all of them. InternalError if the world has
/// another size.
MeshGroups make_mesh_groups(const Group& world, const Mesh& mesh, int shard_ranks = 0);

}  // namespace strata

/// Joins ranks: point-to-point messages, barrier, sums in rank order; and the groups of a mesh. A value
/// passed in, never a global; collectives on tensors are in comm/collectives.h.
///
/// In a group of one, collectives return at once, and send and receive are bugs.
///
/// Where a device works behind the caller's back, a message carries the event behind which its bytes
/// are there, and the receiver's stream waits for it: no call here waits for a device, but for what
/// leaves or enters a process through its memory.
///
/// Threads  one Group object belongs to one rank; different ranks' objects are used concurrently.
/// Errors   Cancelled when another rank failed: the first error is the one that is reported.
#pragma once

#include <ATen/core/Tensor.h>

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
#include "strata/schedule/mesh.h"

namespace strata {

class Error;
class MemoryAccount;
class Mailboxes;

class Group {
 public:
  /// `members`: world ranks, ascending, `rank` among them. `account` (may be null) is charged for
  /// what the rank receives. `device`: where its tensors live.
  Group(std::shared_ptr<Mailboxes> mailboxes, std::vector<int> members, int world_rank,
        std::uint64_t id, MemoryAccount* account, Device device = {});
  /// `device`, `communicators`: the rank's, the same objects in all its groups; null: made here.
  Group(std::shared_ptr<Mailboxes> mailboxes, std::vector<int> members, int world_rank,
        std::uint64_t id, MemoryAccount* account, std::shared_ptr<RankDevice> device,
        std::shared_ptr<Communicators> communicators = nullptr);

  /// Not copied: what a copy numbers by itself would be taken for the other's.
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  Group(Group&&) = default;
  Group& operator=(Group&&) = default;

  int rank() const { return rank_; }  ///< within the group
  int size() const { return static_cast<int>(members_.size()); }
  int world_rank(int rank) const { return members_[rank]; }
  Device device() const { return device_->device(); }  ///< this rank's
  RankDevice& rank_device() const { return *device_; }

  /// Some of the ranks of this group, this one among them, in ascending order. Every member makes
  /// it by itself with the same arguments; `purpose` tells groups of the same ranks apart.
  Group subgroup(const std::vector<int>& ranks, const std::string& purpose) const;

  /// Hands a tensor to `peer`; never waits. Ranks of one process and device share the storage: the
  /// sender must not write to it again. Bytes stay charged to the sender until the receiver takes them.
  void send(int peer, const MessageTag& tag, at::Tensor tensor);

  /// Waits for the message and charges its bytes to this rank's account.
  at::Tensor receive(int peer, const MessageTag& tag);

  /// Lets `peer` read a tensor where it is: as send, but the bytes stay the sender's, who must not
  /// write to them before something later tells it that the peer has read them. Of a device's bytes,
  /// before_write() checks that within a process and makes this rank's stream wait for those that have.
  /// `ready`: behind which a device's bytes are there, if not behind what its stream has.
  void export_buffer(int peer, const MessageTag& tag, at::Tensor tensor,
                     const Completion& ready = {});
  ImportedBuffer import_buffer(int peer, const MessageTag& tag);
  void before_write(const at::Tensor& bytes);

  /// Whether `peer` reads large tensors where they are: on this machine, and able to.
  bool reads_in_place(int peer) const;

  void barrier();

  /// Says what this rank is about to do, e.g. ("forward", 17, 4), or what it is about to receive,
  /// ("activation", 17, 4): ranks that wait for it too long tell it (transport/watchdog.h).
  void doing(const char* what, int position = -1, int micro_batch = -1);

  /// Ends every rank's waits for this one, which has failed. A rank says so before it unwinds: what is ended there may
  /// wait for a device, and that for ranks which wait for this one.
  void fail(const Error& error);

  /// Sums over ranks in rank order: the same bits on every rank and for any timing.
  void all_reduce(std::span<double> values);

  /// A tag for the next collective: ranks of a group start them in the same order.
  MessageTag next_collective();

  /// How the ranks exchange tensors of their devices. Collective, once: it asks them where they are.
  ExchangeWay exchange_way();
  /// Of exchange_way() kCommunicator. Collective, once.
  Communicator& communicator();
  /// Ends those of all groups of the rank, behind the work that they were given. Collective over the world.
  void finish_communicators();

 private:
  Address to(int peer, const MessageTag& tag) const;
  Address from(int peer, const MessageTag& tag) const;
  void post(int peer, const MessageTag& tag, at::Tensor tensor, bool lent, const Completion& ready);

  std::shared_ptr<Mailboxes> mailboxes_;
  std::vector<int> members_;
  int rank_ = 0;
  std::uint64_t id_ = 0;
  MemoryAccount* account_ = nullptr;
  std::shared_ptr<RankDevice> device_;
  std::shared_ptr<Communicators> communicators_;  // of the rank, in all its groups; null: a CPU's
  std::uint32_t collectives_ = 0;
};

/// A group of one.
std::unique_ptr<Group> single_rank();

/// The groups that a rank of a mesh takes part in. Replicas that share one set of ZeRO shards are
/// neighbours on the dp axis (hybrid sharding): `shard` joins them, `replica` joins the ranks that hold
/// the same shard.
struct MeshGroups {
  Mesh mesh;
  Group world;
  Group pp;       ///< stages of one replica
  Group dp;       ///< replicas of one slice of one stage
  Group tp;       ///< slices of one stage
  Group shard;    ///< part of dp
  Group replica;  ///< part of dp, across shard groups
};

/// `shard_ranks` divides mesh.dp; 0: all of dp. InternalError if the world has another size.
MeshGroups make_mesh_groups(const Group& world, const Mesh& mesh, int shard_ranks = 0);

}  // namespace strata

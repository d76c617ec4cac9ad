// Groups are made without communication: each rank computes the group's number from its members and
// purpose, and messages carry it. Collectives of a group are told apart by counting them, for all
// ranks start them in the same order.
#include "strata/comm/group.h"

#include <algorithm>

#include "strata/base/errors.h"
#include "strata/base/philox.h"
#include "strata/comm/mailboxes.h"
#include "strata/device/account.h"

namespace strata {
namespace {

constexpr std::int32_t kCollective = -1;  // MessageTag::kind

std::uint64_t id_of(std::uint64_t parent, const std::vector<int>& members,
                    const std::string& purpose) {
  std::uint64_t id = parent;
  for (const int member : members) id = mix_key(id, static_cast<std::uint64_t>(member));
  for (const char letter : purpose) id = mix_key(id, static_cast<unsigned char>(letter));
  return id;
}

}  // namespace

Group::Group(std::shared_ptr<Mailboxes> mailboxes, std::vector<int> members, int world_rank,
             std::uint64_t id, MemoryAccount* account, Device device)
    : mailboxes_(std::move(mailboxes)),
      members_(std::move(members)),
      id_(id),
      account_(account),
      device_(device) {
  const auto self = std::find(members_.begin(), members_.end(), world_rank);
  STRATA_CHECK(self != members_.end(), "comm.group");
  rank_ = static_cast<int>(self - members_.begin());
}

Group Group::subgroup(const std::vector<int>& ranks, const std::string& purpose) const {
  std::vector<int> members;
  for (const int rank : ranks) members.push_back(members_.at(rank));
  const std::uint64_t id = id_of(id_, members, purpose);
  return Group(mailboxes_, std::move(members), members_[rank_], id, account_, device_);
}

Address Group::to(int peer, const MessageTag& tag) const {
  STRATA_CHECK(peer != rank_ && peer >= 0 && peer < size(), "comm.send");
  return {members_[rank_], members_[peer], id_, tag};
}

Address Group::from(int peer, const MessageTag& tag) const {
  STRATA_CHECK(peer != rank_ && peer >= 0 && peer < size(), "comm.receive");
  return {members_[peer], members_[rank_], id_, tag};
}

void Group::send(int peer, const MessageTag& tag, at::Tensor tensor) {
  mailboxes_->post(to(peer, tag), {std::move(tensor), {}});
}

at::Tensor Group::receive(int peer, const MessageTag& tag) {
  at::Tensor tensor = import_buffer(peer, tag).tensor();
  if (account_) charge_to(tensor, *account_);
  return tensor;
}

void Group::export_buffer(int peer, const MessageTag& tag, at::Tensor tensor) {
  mailboxes_->post(to(peer, tag), {std::move(tensor), {}});
}

ImportedBuffer Group::import_buffer(int peer, const MessageTag& tag) {
  return ImportedBuffer(mailboxes_->take(from(peer, tag)));
}

bool Group::reads_in_place(int peer) const { return mailboxes_->reads_in_place(members_[peer]); }

MessageTag Group::next_collective() {
  return {.kind = kCollective, .value = static_cast<std::int32_t>(collectives_++)};
}

void Group::doing(const char* what, int position, int micro_batch) {
  mailboxes_->progress().doing(members_[rank_], what, position, micro_batch);
}

void Group::barrier() { all_reduce({}); }

void Group::all_reduce(std::span<double> values) {
  if (size() == 1) return;
  const MessageTag tag = next_collective();
  if (rank_ > 0) {
    mailboxes_->post(to(0, tag), {{}, {values.begin(), values.end()}});
    const std::vector<double> sum = mailboxes_->take(from(0, tag)).numbers;
    std::copy(sum.begin(), sum.end(), values.begin());
    return;
  }
  std::vector<double> sum(values.size(), 0.0);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  for (int peer = 1; peer < size(); ++peer) {
    const std::vector<double> contribution = mailboxes_->take(from(peer, tag)).numbers;
    STRATA_CHECK_EQ(contribution.size(), sum.size(), "comm.all_reduce");
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += contribution[i];
  }
  for (int peer = 1; peer < size(); ++peer) mailboxes_->post(to(peer, tag), {{}, sum});
  std::copy(sum.begin(), sum.end(), values.begin());
}

std::unique_ptr<Group> single_rank() {
  return std::make_unique<Group>(std::make_shared<Mailboxes>(1, 0, 1), std::vector<int>{0}, 0, 0,
                                 nullptr);
}

MeshGroups make_mesh_groups(const Group& world, const Mesh& mesh, int shard_ranks) {
  STRATA_CHECK_EQ(world.size(), mesh.size(), "comm.make_mesh_groups");
  const int rank = world.rank(), shards = shard_ranks == 0 ? mesh.dp : shard_ranks;
  STRATA_CHECK_EQ(mesh.dp % shards, 0, "comm.make_mesh_groups");
  const Group dp = world.subgroup(mesh.dp_line(rank), "dp");
  std::vector<int> shard, replica;
  for (int i = 0; i < mesh.dp; ++i) {
    if (i / shards == dp.rank() / shards) shard.push_back(i);
    if (i % shards == dp.rank() % shards) replica.push_back(i);
  }
  return {.mesh = mesh,
          .world = world,
          .pp = world.subgroup(mesh.pp_line(rank), "pp"),
          .dp = dp,
          .tp = world.subgroup(mesh.tp_line(rank), "tp"),
          .shard = dp.subgroup(shard, "shard"),
          .replica = dp.subgroup(replica, "replica")};
}

}  // namespace strata

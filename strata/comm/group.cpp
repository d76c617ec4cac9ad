// Groups are created without communication: each rank computes the group's id from its members and
// purpose, and messages carry it. Collectives of a group are numbered, because all ranks start them
// in the same order.
#include "strata/comm/group.h"

#include <algorithm>
#include <numeric>
#include <utility>

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
    : Group(std::move(mailboxes), std::move(members), world_rank, id, account,
            std::make_shared<RankDevice>(device)) {}

Group::Group(std::shared_ptr<Mailboxes> mailboxes, std::vector<int> members, int world_rank,
             std::uint64_t id, MemoryAccount* account, std::shared_ptr<RankDevice> device,
             std::shared_ptr<Communicators> communicators)
    : mailboxes_(std::move(mailboxes)),
      members_(std::move(members)),
      id_(id),
      account_(account),
      device_(std::move(device)),
      communicators_(std::move(communicators)) {
  const auto self = std::find(members_.begin(), members_.end(), world_rank);
  STRATA_CHECK(self != members_.end(), "comm.group");
  rank_ = static_cast<int>(self - members_.begin());
  if (device_->ops && !communicators_)
    communicators_ = std::make_shared<Communicators>(mailboxes_, world_rank, device_->library,
                                                     device_->device());
}

Group Group::subgroup(const std::vector<int>& ranks, const std::string& purpose) const {
  std::vector<int> members;
  for (const int rank : ranks) members.push_back(members_.at(rank));
  const std::uint64_t id = id_of(id_, members, purpose);
  Group group(mailboxes_, std::move(members), members_[rank_], id, account_, device_,
              communicators_);
  group.sent_bytes_ = sent_bytes_;
  return group;
}

void Group::fail(const Error& error) {
  mailboxes_->fail_everywhere(
      account_ && mailboxes_->world_size() > 1 ? located(error, account_->name()) : error);
}

Address Group::to(int peer, const MessageTag& tag) const {
  STRATA_CHECK(peer != rank_ && peer >= 0 && peer < size(), "comm.send");
  return {members_[rank_], members_[peer], id_, tag};
}

Address Group::from(int peer, const MessageTag& tag) const {
  STRATA_CHECK(peer != rank_ && peer >= 0 && peer < size(), "comm.receive");
  return {members_[peer], members_[rank_], id_, tag};
}

void Group::post(int peer, const MessageTag& tag, at::Tensor tensor, bool exported,
                 const Completion& ready) {
  const Address address = to(peer, tag);
  count_sent(static_cast<std::int64_t>(tensor.nbytes()));
  if (!device_->owns(tensor)) return mailboxes_->post(address, {std::move(tensor), {}});
  if (!mailboxes_->is_local(address.to)) {
    device_->stream.wait(ready);
    return device_->pass_to_host(
        tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous(),
        [mailboxes = mailboxes_, address](at::Tensor host) {
          mailboxes->post(address, {.tensor = std::move(host), .numbers = {}, .of_device = true});
        },
        [mailboxes = mailboxes_](const Error& error) { mailboxes->fail_everywhere(error); });
  }
  Message message{.tensor = std::move(tensor), .numbers = {}};
  // Its memory would be reused in the order of this rank's stream instead of the reader's.
  const bool elsewhere = mailboxes_->device_of(address.to) != device();
  message.ready = ready.source() ? ready : device_->stream.record();
  if (exported || elsewhere)
    message.open_export = device_->exports.add(message.tensor, address.to, elsewhere);
  mailboxes_->post(address, std::move(message));
}

void Group::post(int peer, const MessageTag& tag, std::vector<double> numbers) {
  count_sent(static_cast<std::int64_t>(numbers.size() * sizeof(double)));
  mailboxes_->post(to(peer, tag), {{}, std::move(numbers)});
}

void Group::send(int peer, const MessageTag& tag, at::Tensor tensor) {
  post(peer, tag, std::move(tensor), /*exported=*/false, /*ready=*/{});
}

at::Tensor Group::receive(int peer, const MessageTag& tag) {
  const ImportedBuffer buffer = import_buffer(peer, tag);
  at::Tensor tensor = buffer.tensor();
  if (buffer.is_exported()) {  // the bytes are another device's
    at::Tensor own = device_->ops->empty_like(device_->stream, tensor);
    device_->ops->copy(device_->stream, own, tensor);
    tensor = std::move(own);
  }
  if (account_) charge_to(tensor, *account_);
  return tensor;
}

void Group::export_buffer(int peer, const MessageTag& tag, at::Tensor tensor,
                          const Completion& ready) {
  if (device_->owns(tensor)) device_->exports.reclaim(device_->stream);
  post(peer, tag, std::move(tensor), /*exported=*/true, ready);
}

ImportedBuffer Group::import_buffer(int peer, const MessageTag& tag) {
  Message message = mailboxes_->take(from(peer, tag));
  // Messages that never were on a device are received by other threads of the rank, too
  // (checkpoint/saver.h). These enqueue nothing on its stream, which may be recorded meanwhile.
  if (!message.of_device && !message.open_export && !message.ready.source())
    return ImportedBuffer(std::move(message));
  device_->exports.reclaim(device_->stream);
  device_->stream.wait(message.ready);
  if (message.of_device && device_->ops) {
    const auto& remote = message.remote;
    return ImportedBuffer(device_->on_device(
        remote ? remote->copy(device_->ops->host_empty({remote->numel()}, remote->dtype()))
               : message.tensor));
  }
  return ImportedBuffer(std::move(message), device_->stream);
}

void Group::before_write(const at::Tensor& bytes) {
  if (mailboxes_->failed()) throw Cancelled();  // a failed rank does not end its imports
  device_->exports.before_write(bytes, device_->stream);
}

bool Group::has_arrived(int peer, const MessageTag& tag) const {
  return mailboxes_->holds(from(peer, tag));
}

bool Group::reads_in_place(int peer) const { return mailboxes_->reads_in_place(members_[peer]); }

MessageTag Group::next_collective() {
  return {.kind = kCollective, .value = static_cast<std::int32_t>(collectives_++)};
}

ExchangeWay Group::exchange_way() {
  return communicators_ ? communicators_->way(members_) : ExchangeWay::kPeers;
}

Communicator& Group::communicator() {
  STRATA_CHECK(communicators_, "comm.communicator");
  return communicators_->of(members_);
}

void Group::finish_communicators() {
  if (communicators_) communicators_->finish();
}

void Group::report_progress(const char* what, int position, int micro_batch) {
  if (device_->marks) device_->marks->report_progress(what, position, micro_batch);
  mailboxes_->progress().report_progress(members_[rank_], what, position, micro_batch);
}

void Group::barrier() { all_reduce({}); }

void Group::all_reduce(std::span<double> values) {
  if (size() == 1) return;
  const MessageTag tag = next_collective();
  if (rank_ > 0) {
    post(0, tag, {values.begin(), values.end()});
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
  for (int peer = 1; peer < size(); ++peer) post(peer, tag, sum);
  std::copy(sum.begin(), sum.end(), values.begin());
}

std::unique_ptr<Group> single_rank() {
  return std::make_unique<Group>(std::make_shared<Mailboxes>(1, 0, 1), std::vector<int>{0}, 0, 0,
                                 nullptr);
}

MeshGroups make_mesh_groups(const Group& world, const Mesh& mesh, int shard_ranks) {
  STRATA_CHECK_EQ(world.size(), mesh.size(), "comm.make_mesh_groups");
  const int rank = world.rank(), shards = shard_ranks == 0 ? mesh.weight_ranks() : shard_ranks;
  STRATA_CHECK_EQ(mesh.weight_ranks() % shards, 0, "comm.make_mesh_groups");
  auto lines = PerAxis<Group>::made_by(
      [&](Axis axis) { return world.subgroup(mesh.line(rank, axis), name_of(axis)); });
  for (const AxisInfo& axis : kAxes) lines[axis.id].count_alone();
  Group weights = world.subgroup(mesh.weight_ranks(rank), "weights");
  weights.count_alone();
  std::vector<int> all(static_cast<std::size_t>(mesh.size())), shard, replica;
  std::iota(all.begin(), all.end(), 0);
  for (int i = 0; i < weights.size(); ++i) {
    if (i / shards == weights.rank() / shards) shard.push_back(i);
    if (i % shards == weights.rank() % shards) replica.push_back(i);
  }
  Group of_shard = weights.subgroup(shard, "shard");
  Group of_replica = weights.subgroup(replica, "replica");
  return {.mesh = mesh,
          .world = world.subgroup(all, "mesh"),
          .lines = std::move(lines),
          .weights = std::move(weights),
          .shard = std::move(of_shard),
          .replica = std::move(of_replica)};
}

}  // namespace strata

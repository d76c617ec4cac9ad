// Overlapping sets must be created in the order of their first use. In any other order, such as
// that of their ids, a rank would wait for peers that do not need the set yet and that may wait for
// what the rank does next. Shutdown has no such order: all are started before one is awaited.
#include "strata/comm/communicators.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/philox.h"
#include "strata/comm/library_environment.h"
#include "strata/comm/mailboxes.h"
#include "strata/comm/message.h"
#include "strata/comm/shared_buffer.h"

namespace strata {
namespace {

constexpr std::int32_t kPlace = -2, kJoin = -3;  // MessageTag::kind

std::uint64_t number_of(const std::vector<int>& ranks) {
  std::uint64_t number = 0;
  for (const int rank : ranks) number = mix_key(number, static_cast<std::uint64_t>(rank));
  return number;
}

std::string version_name(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace

// A library rejects two ranks on one device, and one process without the library rejects it for
// all.
ExchangeWay exchange_way(std::span<const RankPlace> places) {
  std::set<std::uint64_t> devices;
  std::set<int> versions;
  bool one_process = true;
  for (const RankPlace& place : places) {
    one_process = one_process && place.process == places[0].process;
    devices.insert(place.device);
    versions.insert(place.library_version);
  }
  if (one_process) return ExchangeWay::kPeers;
  if (versions.contains(0) || devices.size() < places.size()) return ExchangeWay::kThroughHost;
  if (versions.size() == 1) return ExchangeWay::kCommunicator;
  throw UserError({.operation = "comm.exchange_way",
                   .what = "processes have different versions of NCCL",
                   .expected = version_name(*versions.begin()),
                   .got = version_name(*versions.rbegin()),
                   .fix = "install the same PyTorch on all machines"});
}

Communicators::Communicators(std::shared_ptr<Mailboxes> mailboxes, int world_rank,
                             const CollectiveLibrary& library, Device device)
    : mailboxes_(std::move(mailboxes)),
      world_rank_(world_rank),
      library_(library),
      device_(device) {}

Communicators::~Communicators() {
  for (const auto& [ranks, communicator] : made_) communicator->begin_abort();
}

// The lowest rank answers the concatenated texts of all ranks.
std::string Communicators::meet(const std::vector<int>& ranks, int kind, const std::string& own,
                                const std::function<std::string(const std::string&)>& answer) {
  const std::uint64_t group = number_of(ranks);
  const auto address = [&](int from, int to) {
    return Address{.from = from, .to = to, .group = group, .tag = {.kind = kind}};
  };
  const auto post = [&](int to, const std::string& text) {
    mailboxes_->post(address(world_rank_, to), {.tensor = byte_tensor(text), .numbers = {}});
  };
  const auto take = [&](int from) {
    return text_of(ImportedBuffer(mailboxes_->take(address(from, world_rank_))).tensor());
  };
  if (world_rank_ != ranks[0]) {
    post(ranks[0], own);
    return take(ranks[0]);
  }
  std::string all = own;
  for (std::size_t i = 1; i < ranks.size(); ++i) all += take(ranks[i]);
  const std::string reply = answer(all);
  for (std::size_t i = 1; i < ranks.size(); ++i) post(ranks[i], reply);
  return reply;
}

ExchangeWay Communicators::way(const std::vector<int>& ranks) {
  if (const auto known = ways_.find(ranks); known != ways_.end()) return known->second;
  if (std::ranges::all_of(ranks, [&](int rank) { return mailboxes_->is_local(rank); }))
    return ways_[ranks] = ExchangeWay::kPeers;
  const bool present = library_.present();
  const RankPlace here{.process = world_rank_ / mailboxes_->local_ranks(),
                       .library_version = present ? library_.version() : 0,
                       .device = present ? library_.device_id(device_) : 0};
  const std::string bytes = meet(ranks, kPlace, {reinterpret_cast<const char*>(&here), sizeof here},
                                 [](const std::string& all) { return all; });
  std::vector<RankPlace> places(ranks.size());
  STRATA_CHECK_EQ(bytes.size(), places.size() * sizeof(RankPlace), "comm.exchange_way");
  std::memcpy(places.data(), bytes.data(), bytes.size());
  return ways_[ranks] = exchange_way(places);
}

Communicator& Communicators::of(const std::vector<int>& ranks) {
  STRATA_CHECK(way(ranks) == ExchangeWay::kCommunicator, "comm.communicator");
  if (const auto found = made_.find(ranks); found != made_.end()) return *found->second;
  const auto self = std::find(ranks.begin(), ranks.end(), world_rank_);
  STRATA_CHECK(self != ranks.end(), "comm.communicator");
  require_calls_that_return([](const char* name) { return std::getenv(name); });
  const std::string id =
      meet(ranks, kJoin, "", [&](const std::string&) { return library_.unique_id(); });
  const auto fail = [mailboxes = mailboxes_, rank = world_rank_](const Error& error,
                                                                 LibraryFailure failure) {
    mailboxes->fail_everywhere(
        located(error, "rank " + std::to_string(rank)),
        failure == LibraryFailure::kPeer ? FailureOf::kPeer : FailureOf::kRank);
  };
  auto made = std::make_unique<Communicator>(
      library_, id, static_cast<int>(self - ranks.begin()), ranks, device_,
      CommunicatorRun{.failed = [mailboxes = mailboxes_] { return mailboxes->failed(); },
                      .fail = fail});
  return *made_.emplace(ranks, std::move(made)).first->second;
}

void Communicators::finish() {
  for (const auto& [ranks, communicator] : made_) communicator->begin_finish();
  for (const auto& [ranks, communicator] : made_) communicator->finish();
}

}  // namespace strata

// A rank is a thread with a pool, an account and a mailbox. An error of one rank becomes the run's
// error (mailboxes keep the first with the lowest precedence); the others end with Cancelled, which
// is not reported. Accounts are never freed, because tensors outlive ranks.
#include "strata/comm/ranks.h"

#include <c10/core/AutogradState.h>

#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/philox.h"
#include "strata/comm/agent_store.h"
#include "strata/comm/collective_library.h"
#include "strata/comm/mailboxes.h"
#include "strata/comm/peer_protocol.h"
#include "strata/device/thread_pool.h"
#include "strata/transport/join.h"
#include "strata/transport/secret.h"
#include "strata/transport/transport.h"
#include "strata/transport/watchdog.h"

namespace strata {
namespace {

constexpr std::uint64_t kAgreements = ~std::uint64_t{0};  // Address::group

void require_legal(const RanksOptions& options, const Rendezvous& rendezvous) {
  if (options.ranks < 1) {
    throw UserError({.operation = "comm.run_ranks",
                     .what = "too few ranks",
                     .expected = "at least 1",
                     .got = std::to_string(options.ranks),
                     .fix = "set mesh.pp to 1 or more"});
  }
  if (options.ranks % rendezvous.processes == 0) return;
  throw UserError({.operation = "comm.run_ranks",
                   .what = "the ranks of the mesh cannot be divided evenly among the processes",
                   .expected = "a multiple of " + std::to_string(rendezvous.processes) +
                               " ranks, as there are so many processes (" + rendezvous.source + ")",
                   .got = std::to_string(options.ranks) + " ranks",
                   .fix = "change mesh.dp, mesh.tp or mesh.pp, or start another number of "
                          "processes"});
}

double join_seconds(const RanksOptions& options) {
  if (options.join_seconds > 0) return options.join_seconds;
  const char* text = std::getenv("STRATA_JOIN_SECONDS");
  if (!text) return 25;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  constexpr double kMost = 86400;
  if (end != text && *end == '\0' && seconds > 0 && seconds <= kMost) return seconds;
  throw UserError({.operation = "comm.join",
                   .where = "STRATA_JOIN_SECONDS",
                   .what = "not a number of seconds",
                   .expected = "more than 0, at most 86400",
                   .got = std::string(text).substr(0, 40),
                   .fix = "unset STRATA_JOIN_SECONDS"});
}

JoinOptions join_options(const RanksOptions& options) {
  return {.version = options.version.empty() ? STRATA_VERSION : options.version,
          .fingerprint = options.fingerprint,
          .seconds = join_seconds(options),
          .secret = secret_from([](const char* name) { return std::getenv(name); }),
          .broadcast_port = broadcast_number};
}

// Without NCCL, which knows it, a device is identified by its number on the machine.
std::uint64_t id_of(Device device) {
  if (device.kind == DeviceKind::kCuda && nccl_library().present())
    return nccl_library().device_id(device);
  std::array<char, HOST_NAME_MAX + 1> host{};
  ::gethostname(host.data(), host.size() - 1);
  return mix_key(std::hash<std::string>()(host.data()), static_cast<std::uint64_t>(device.index));
}

std::string name_of(const RanksOptions& options, int rank) {
  return options.mesh.size() == options.ranks ? options.mesh.name(rank)
                                              : "rank " + std::to_string(rank);
}

}  // namespace

struct World::Parts {
  Parts() = default;
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
  RanksOptions options;
  Rendezvous rendezvous;
  std::shared_ptr<Mailboxes> mailboxes;
  std::vector<MemoryAccount*> accounts;
  std::vector<std::shared_ptr<RankDevice>> devices;
  std::vector<Device> limited;
  std::vector<std::uint64_t> device_ids;  // of all ranks
  TransportChoice choice;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<PeerProtocol> peers;  // null: alone
  std::unique_ptr<Watchdog> watchdog;
  std::int32_t agreements = 0;
  bool finished = false;

  int first_rank() const { return mailboxes->first_rank(); }

  // Processes of a machine divide its devices among them.
  Device device_of(int rank) const {
    return device_of_rank(options.device.kind, rendezvous.local_process * mailboxes->local_ranks() +
                                                   rank - first_rank());
  }

  // The allocator enforces the limit of a device with one rank; with several ranks it is checked
  // after each action.
  void limit_devices() {
    if (options.device_bytes == 0) return;
    if (!options.limit_memory) options.limit_memory = limit_device_memory;
    std::map<int, int> ranks_on;
    for (int i = 0; i < mailboxes->local_ranks(); ++i)
      ++ranks_on[device_of(first_rank() + i).index];
    for (const auto& [index, ranks] : ranks_on) {
      if (ranks > 1) continue;
      options.limit_memory({options.device.kind, index}, options.device_bytes);
      limited.push_back({options.device.kind, index});
    }
  }

  // The process may have another run, with another budget or none.
  ~Parts() {
    for (const Device device : limited) options.limit_memory(device, 0);
  }

  std::vector<std::uint64_t> own_device_ids() const {
    std::vector<std::uint64_t> ids;
    for (int i = 0; i < mailboxes->local_ranks(); ++i) {
      ids.push_back(id_of(device_of(first_rank() + i)));
    }
    return ids;
  }

  void gather_device_ids(Bootstrap& bootstrap) {
    const std::vector<std::uint64_t> own = own_device_ids();
    const std::size_t bytes = own.size() * sizeof own[0];
    for (const std::string& ids :
         bootstrap.all_gather({reinterpret_cast<const char*>(own.data()), bytes})) {
      STRATA_CHECK_EQ(ids.size(), bytes, "comm.devices");
      const std::size_t known = device_ids.size();
      device_ids.resize(known + own.size());
      std::memcpy(&device_ids[known], ids.data(), bytes);
    }
  }

  void connect() {
    if (options.connect) {
      transport = options.connect(rendezvous);
    } else {
      Bootstrap bootstrap(rendezvous, join_options(options));
      gather_device_ids(bootstrap);
      choice = agree_on_transport(bootstrap, options.transport, ucx_support_of_this_machine());
      transport =
          choice.kind == TransportKind::kUcx ? connect_ucx(bootstrap) : connect_sockets(bootstrap);
    }
    transport = with_limit(std::move(transport), options.link);
    peers = std::make_unique<PeerProtocol>(
        *mailboxes, *transport,
        PeerProtocol::Options{.name_of = [this](int rank) { return name_of(options, rank); },
                              .account_of = [this](int rank) -> MemoryAccount& {
                                return *accounts[rank - first_rank()];
                              },
                              .on_status =
                                  [this](int process, std::span<const std::byte> status) {
                                    update_progress(process, status);
                                  }});
    mailboxes->set_remote(peers.get());
  }

  void make_devices() {
    std::vector<Device> places;
    for (int rank = first_rank(); rank < first_rank() + mailboxes->local_ranks(); ++rank) {
      devices.push_back(options.rank_device
                            ? options.rank_device(rank)
                            : std::make_shared<RankDevice>(device_of(rank), options.reduction));
      places.push_back(devices.back()->device());
    }
    mailboxes->set_devices(std::move(places));
  }

  void update_progress(int process, std::span<const std::byte> status) {
    std::vector<RankProgress> ranks(static_cast<std::size_t>(mailboxes->local_ranks()));
    const std::span bytes = std::as_writable_bytes(std::span(ranks));
    STRATA_CHECK_EQ(status.size(), bytes.size(), "comm.status");
    std::memcpy(bytes.data(), status.data(), bytes.size());
    mailboxes->progress().update(process * mailboxes->local_ranks(), ranks);
  }

  void start_watchdog() {
    if (options.ranks == 1 || (options.stall_seconds <= 0 && !peers)) return;
    Watchdog::Options watching{.first_rank = first_rank(),
                               .local_ranks = mailboxes->local_ranks(),
                               .stall_seconds = options.stall_seconds,
                               .fatal_seconds = options.stall_fatal_seconds,
                               .name_of = [this](int rank) { return name_of(options, rank); },
                               .warn =
                                   [this](const std::string& line) {
                                     if (options.warn) options.warn(line);
                                   },
                               .fail = [this](const Error& error) { fail(error); },
                               .failed = [this] { return mailboxes->failed(); }};
    for (const std::shared_ptr<RankDevice>& device : devices)
      if (device->stream.queue()) device->marks = std::make_unique<DeviceMarks>(device->stream);
    watching.look_at_device = [this](int rank, RankProgress& progress) {
      if (const auto& marks = devices[rank - first_rank()]->marks) marks->look(progress);
    };
    if (peers)
      watching.tell_others = [this](std::span<const RankProgress> ranks) {
        peers->send_status(std::as_bytes(ranks));
      };
    watchdog = std::make_unique<Watchdog>(mailboxes->progress(), std::move(watching));
  }

  void fail(const Error& error) {
    if (peers) {
      peers->fail(error, FailureOf::kRank);
    } else {
      mailboxes->fail(to_exception(error));
    }
  }

  // With the rank in front, unless there is only one.
  void fail(const Error& error, int rank) {
    fail(options.ranks == 1 ? error : located(error, name_of(options, rank)));
  }

  void run_rank(int rank, const RankFunction& function) {
    MemoryAccount& account = *accounts[rank - first_rank()];
    try {
      const DeviceScope on_device(device_of(rank));
      c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
      ThreadPool pool(options.threads_per_rank);
      const ThreadPoolScope threads(pool);
      const AccountScope scope(account);
      mailboxes->progress().bind(rank);
      std::vector<int> members(options.ranks);
      std::iota(members.begin(), members.end(), 0);
      Group group(mailboxes, std::move(members), rank, 0, &account, devices[rank - first_rank()]);
      function(group, account);
      group.finish_communicators();
      mailboxes->progress().end(rank);
    } catch (const Cancelled&) {
    } catch (const std::exception& error) {
      fail(device_error(error, account), rank);
    }
  }

  void finish() {
    if (finished) return;
    finished = true;
    if (peers) {
      if (watchdog) watchdog->tell();  // reports that its ranks have ended
      peers->finish();
    }
    watchdog.reset();
  }

  [[noreturn]] void end_with_failure() {
    finish();
    mailboxes->rethrow_failure();
    throw Cancelled();  // not reached: every cancellation has an error
  }

  std::string decide_for_all(const std::function<std::string()>& decide, const MessageTag& tag) {
    std::string text;
    try {
      text = decide();
    } catch (const std::exception& error) {
      fail(to_error(error));
    }
    if (mailboxes->failed()) end_with_failure();
    const at::Tensor bytes = byte_tensor(text);
    for (int process = 1; process < rendezvous.processes; ++process)
      mailboxes->post({0, process * mailboxes->local_ranks(), kAgreements, tag}, {bytes, {}});
    return text;
  }
};

World::World(RanksOptions options) : parts_(std::make_unique<Parts>()) {
  parts_->rendezvous = options.rendezvous ? *options.rendezvous : rendezvous_from_environment();
  parts_->options = std::move(options);
  const Rendezvous& rendezvous = parts_->rendezvous;
  require_legal(parts_->options, rendezvous);
  install_accounting_allocator();
  const int local_ranks = parts_->options.ranks / rendezvous.processes;
  parts_->mailboxes = std::make_shared<Mailboxes>(parts_->options.ranks,
                                                  rendezvous.process * local_ranks, local_ranks);
  for (int i = 0; i < local_ranks; ++i)
    parts_->accounts.push_back(&immortal_account(name_of(parts_->options, parts_->first_rank() + i),
                                                 parts_->options.device_bytes, "memory.device",
                                                 parts_->options.device.kind));
  parts_->limit_devices();
  parts_->make_devices();
  if (rendezvous.alone()) {
    parts_->device_ids = parts_->own_device_ids();
  } else {
    parts_->connect();
  }
  try {
    parts_->start_watchdog();
  } catch (const std::exception& error) {
    parts_->fail(to_error(error));  // the others would wait for ranks that never start
    parts_->finish();
    throw;
  }
}

World::~World() {
  if (parts_->finished) return;
  parts_->fail(SystemError({.operation = "comm.world",
                            .where = "process " + std::to_string(process()),
                            .what = "left before the ranks were started",
                            .fix = "look for its own error"}));
  parts_->finish();
}

int World::process() const { return parts_->rendezvous.process; }
int World::processes() const { return parts_->rendezvous.processes; }
int World::first_rank() const { return parts_->first_rank(); }
int World::local_ranks() const { return parts_->mailboxes->local_ranks(); }

const TransportChoice& World::transport() const { return parts_->choice; }

const std::vector<std::uint64_t>& World::device_ids() const { return parts_->device_ids; }

std::string World::agree(const std::function<std::string()>& decide) {
  const MessageTag tag{.value = parts_->agreements++};
  if (process() == 0) return parts_->decide_for_all(decide, tag);
  try {
    return text_of(
        ImportedBuffer(parts_->mailboxes->take({0, first_rank(), kAgreements, tag})).tensor());
  } catch (const Cancelled&) {
    parts_->end_with_failure();
  }
}

void World::run(const RankFunction& function) {
  std::vector<std::jthread> threads;
  try {
    for (int i = 0; i < local_ranks(); ++i)
      threads.emplace_back([&, rank = first_rank() + i] { parts_->run_rank(rank, function); });
  } catch (const std::exception& error) {
    parts_->fail(to_error(error));  // those that run would wait for those that don't
  }
  threads.clear();
  for (const std::shared_ptr<RankDevice>& device : parts_->devices) device->finish_passing();
  parts_->finish();
  parts_->mailboxes->rethrow_failure();
}

void run_ranks(RanksOptions options, const RankFunction& function) {
  World(std::move(options)).run(function);
}

void run_thread_ranks(const ThreadRanksOptions& options, const RankFunction& function) {
  run_ranks({.ranks = options.ranks,
             .threads_per_rank = options.threads_per_rank,
             .device_bytes = options.device_bytes,
             .device = options.device,
             .stall_seconds = 0,
             .rendezvous = Rendezvous{}},
            function);
}

}  // namespace strata

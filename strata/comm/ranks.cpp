#include "strata/comm/ranks.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/AutogradState.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/comm/courier.h"
#include "strata/comm/failure.h"
#include "strata/comm/join.h"
#include "strata/comm/neighbours.h"
#include "strata/comm/post_office.h"
#include "strata/comm/stall_watch.h"

namespace strata {
namespace {

constexpr std::uint64_t kAgreements = ~std::uint64_t{0};  // Address::group

// Never freed: a tensor that outlives its rank, even a static one, credits its account when it
// goes.
MemoryAccount& immortal_account(const std::string& name, std::int64_t budget_bytes) {
  static std::mutex mutex;
  static auto& accounts = *new std::vector<std::unique_ptr<MemoryAccount>>;
  const std::lock_guard lock(mutex);
  return *accounts.emplace_back(std::make_unique<MemoryAccount>(name, budget_bytes));
}

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
                   .what = "the ranks of the mesh cannot be shared out evenly",
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
  const double seconds = std::strtod(text, nullptr);
  if (seconds > 0) return seconds;
  throw UserError({.operation = "comm.join",
                   .where = "STRATA_JOIN_SECONDS",
                   .what = "not a number of seconds",
                   .expected = "more than 0",
                   .got = text,
                   .fix = "unset STRATA_JOIN_SECONDS"});
}

std::string name_of(const RanksOptions& options, int rank) {
  return options.mesh.size() == options.ranks ? options.mesh.name(rank)
                                              : "rank " + std::to_string(rank);
}

InternalError unexpected(const std::exception& error) {
  return InternalError(
      {.operation = "comm.run_ranks", .what = "an unexpected exception", .got = error.what()});
}

}  // namespace

struct World::Parts {
  RanksOptions options;
  Rendezvous rendezvous;
  std::shared_ptr<PostOffice> office;
  std::vector<MemoryAccount*> accounts;
  std::unique_ptr<Pipes> pipes;
  std::unique_ptr<Courier> courier;  // null: alone
  std::unique_ptr<StallWatch> watch;
  std::int32_t agreements = 0;
  bool finished = false;

  int first_rank() const { return office->first_rank(); }

  void start_courier() {
    courier = std::make_unique<Courier>(
        *office, *pipes,
        Courier::Options{
            .name_of = [this](int rank) { return name_of(options, rank); },
            .account_of = [this](int rank) -> MemoryAccount& {
              return *accounts[rank - first_rank()];
            },
            .on_status = [this](int process,
                                std::span<const std::byte> status) { hear(process, status); },
            .neighbours = meet_neighbours(*pipes)});
    office->set_carrier(courier.get());
  }

  void hear(int process, std::span<const std::byte> status) {
    std::vector<Activity> activities(static_cast<std::size_t>(office->local_ranks()));
    const std::span bytes = std::as_writable_bytes(std::span(activities));
    STRATA_CHECK_EQ(status.size(), bytes.size(), "comm.status");
    std::memcpy(bytes.data(), status.data(), bytes.size());
    office->board().hear(process * office->local_ranks(), activities);
  }

  void start_watch() {
    if (options.ranks == 1 || (options.stall_seconds <= 0 && !courier)) return;
    StallWatch::Options watching{
        .stall_seconds = options.stall_seconds,
        .fatal_seconds = options.stall_fatal_seconds,
        .name_of = [this](int rank) { return name_of(options, rank); },
        .warn = [](const std::string& line) { std::cerr << "stall: " + line + "\n"
                                                        << std::flush; },
        .fail = [this](const Error& error) { fail(error); }};
    if (courier)
      watching.tell_others = [this](std::span<const Activity> activities) {
        courier->send_status(std::as_bytes(activities));
      };
    watch = std::make_unique<StallWatch>(*office, std::move(watching));
  }

  void fail(const Error& error) {
    if (courier) {
      courier->fail(error);
    } else {
      office->fail(located(error, ""));
    }
  }

  // With the rank in front, unless there is only one.
  void fail(const Error& error, int rank) {
    if (options.ranks == 1) return fail(error);
    try {
      std::rethrow_exception(located(error, name_of(options, rank)));
    } catch (const Error& named) {
      fail(named);
    }
  }

  void run_rank(int rank, const RankFunction& function) {
    MemoryAccount& account = *accounts[rank - first_rank()];
    try {
      c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
      at::set_num_threads(options.threads_per_rank);
      const AccountScope scope(account);
      office->board().bind(rank);
      std::vector<int> members(options.ranks);
      std::iota(members.begin(), members.end(), 0);
      Group group(office, std::move(members), rank, 0, &account);
      function(group, account);
      office->board().end(rank);
    } catch (const Cancelled&) {
    } catch (const Error& error) {
      fail(error, rank);
    } catch (const std::exception& error) {
      fail(unexpected(error), rank);
    }
  }

  void finish() {
    if (finished) return;
    finished = true;
    if (courier) {
      watch->tell();  // that its ranks have ended
      courier->finish();
    }
    watch.reset();
  }

  [[noreturn]] void end_with_failure() {
    finish();
    office->rethrow_failure();
    throw Cancelled();  // not reached: whoever cancels has an error
  }

  std::string decide_for_all(const std::function<std::string()>& decide, const MessageTag& tag) {
    std::string text;
    try {
      text = decide();
    } catch (const Error& error) {
      fail(error);
    } catch (const std::exception& error) {
      fail(unexpected(error));
    }
    if (office->failed()) end_with_failure();
    const at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
    std::memcpy(bytes.data_ptr(), text.data(), text.size());
    for (int process = 1; process < rendezvous.processes; ++process)
      office->post({0, process * office->local_ranks(), kAgreements, tag}, {bytes, {}});
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
  parts_->office = std::make_shared<PostOffice>(parts_->options.ranks,
                                                rendezvous.process * local_ranks, local_ranks);
  for (int i = 0; i < local_ranks; ++i)
    parts_->accounts.push_back(&immortal_account(name_of(parts_->options, parts_->first_rank() + i),
                                                 parts_->options.device_bytes));
  if (!rendezvous.alone()) {
    const std::string version =
        parts_->options.version.empty() ? STRATA_VERSION : parts_->options.version;
    parts_->pipes = join(rendezvous, {.version = version,
                                      .fingerprint = parts_->options.fingerprint,
                                      .seconds = join_seconds(parts_->options)});
    parts_->start_courier();
  }
  parts_->start_watch();
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
int World::local_ranks() const { return parts_->office->local_ranks(); }

std::string World::agree(const std::function<std::string()>& decide) {
  const MessageTag tag{.value = parts_->agreements++};
  if (process() == 0) return parts_->decide_for_all(decide, tag);
  try {
    const at::Tensor text =
        Loan(parts_->office->take({0, first_rank(), kAgreements, tag})).tensor();
    return {static_cast<const char*>(text.const_data_ptr()), text.nbytes()};
  } catch (const Cancelled&) {
    parts_->end_with_failure();
  }
}

void World::run(const RankFunction& function) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < local_ranks(); ++i)
    threads.emplace_back([&, rank = first_rank() + i] { parts_->run_rank(rank, function); });
  threads.clear();
  parts_->finish();
  parts_->office->rethrow_failure();
}

void run_ranks(RanksOptions options, const RankFunction& function) {
  World(std::move(options)).run(function);
}

}  // namespace strata

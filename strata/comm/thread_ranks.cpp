#include "strata/comm/thread_ranks.h"

#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "strata/base/errors.h"

namespace strata {
namespace {

// Thrown out of the waits of the surviving ranks; never reported.
struct Cancelled {};

// What the ranks share. One mutex: messages are pointers, so it is held for nanoseconds.
class World {
 public:
  explicit World(int ranks) : mailboxes_(ranks), contributions_(ranks) {}

  int size() const { return static_cast<int>(mailboxes_.size()); }

  void send(int from, int to, const MessageTag& tag, at::Tensor tensor) {
    const std::lock_guard lock(mutex_);
    const bool fresh =
        mailboxes_[to].messages.emplace(std::pair(from, tag), std::move(tensor)).second;
    STRATA_CHECK(fresh, "comm.send");
    mailboxes_[to].arrived.notify_one();
  }

  at::Tensor receive(int from, int to, const MessageTag& tag) {
    std::unique_lock lock(mutex_);
    Mailbox& mailbox = mailboxes_[to];
    decltype(mailbox.messages.find({})) message;
    mailbox.arrived.wait(lock, [&] {
      message = mailbox.messages.find({from, tag});
      return failed_ || message != mailbox.messages.end();
    });
    if (failed_) throw Cancelled();
    at::Tensor tensor = std::move(message->second);
    mailbox.messages.erase(message);
    return tensor;
  }

  // `last` runs once, in the last rank to arrive, while the others still wait.
  template <typename Last>
  void meet(Last last) {
    std::unique_lock lock(mutex_);
    const std::int64_t meeting = meetings_;
    if (++present_ == size()) {
      last();
      present_ = 0;
      ++meetings_;
      met_.notify_all();
    } else {
      met_.wait(lock, [&] { return failed_ || meetings_ != meeting; });
    }
    if (failed_) throw Cancelled();
  }

  void all_reduce(int rank, std::span<double> values) {
    contributions_[rank] = values;
    meet([&] {
      std::vector<double> sum(values.size(), 0.0);
      for (const std::span<double> contribution : contributions_) {
        STRATA_CHECK_EQ(contribution.size(), sum.size(), "comm.all_reduce");
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += contribution[i];
      }
      for (const std::span<double> contribution : contributions_)
        std::copy(sum.begin(), sum.end(), contribution.begin());
    });
  }

  // Keeps the first error and wakes everybody.
  void fail(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!failed_) error_ = std::move(error);
    failed_ = true;
    for (Mailbox& mailbox : mailboxes_) mailbox.arrived.notify_all();
    met_.notify_all();
  }

  void rethrow_failure() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  struct Mailbox {
    std::map<std::pair<int, MessageTag>, at::Tensor> messages;
    std::condition_variable arrived;
  };
  std::mutex mutex_;
  std::vector<Mailbox> mailboxes_;
  std::vector<std::span<double>> contributions_;
  std::condition_variable met_;
  int present_ = 0;
  std::int64_t meetings_ = 0;
  bool failed_ = false;
  std::exception_ptr error_;
};

class ThreadGroup final : public Group {
 public:
  ThreadGroup(World& world, int rank, MemoryAccount& account)
      : world_(world), rank_(rank), account_(account) {}

  int rank() const override { return rank_; }
  int size() const override { return world_.size(); }
  void send(int peer, const MessageTag& tag, at::Tensor tensor) override {
    world_.send(rank_, peer, tag, std::move(tensor));
  }
  at::Tensor receive(int peer, const MessageTag& tag) override {
    at::Tensor tensor = world_.receive(peer, rank_, tag);
    charge_to(tensor, account_);
    return tensor;
  }
  void barrier() override {
    world_.meet([] {});
  }
  void all_reduce(std::span<double> values) override {
    if (size() > 1) world_.all_reduce(rank_, values);
  }

 private:
  World& world_;
  int rank_;
  MemoryAccount& account_;
};

// The same error with the rank in front of its place.
std::exception_ptr located(const Error& error, const std::string& rank) {
  ErrorText text = error.text();
  text.where = text.where.empty() || text.where == rank ? rank : rank + ", " + text.where;
  switch (error.kind()) {
    case ErrorKind::kUser:
      return std::make_exception_ptr(UserError(std::move(text)));
    case ErrorKind::kSystem:
      return std::make_exception_ptr(SystemError(std::move(text)));
    case ErrorKind::kInternal:
      break;
  }
  return std::make_exception_ptr(InternalError(std::move(text)));
}

void run_rank(World& world, int rank, const ThreadRanksOptions& options, MemoryAccount& account,
              const RankFunction& function) {
  try {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
    at::set_num_threads(options.threads_per_rank);
    const AccountScope scope(account);
    ThreadGroup group(world, rank, account);
    function(group, account);
  } catch (const Cancelled&) {
  } catch (const Error& error) {
    world.fail(options.ranks == 1 ? std::current_exception() : located(error, account.name()));
  } catch (const std::exception& error) {
    world.fail(std::make_exception_ptr(InternalError({.operation = "comm.run_thread_ranks",
                                                      .where = account.name(),
                                                      .what = "an unexpected exception",
                                                      .got = error.what()})));
  }
}

// Never freed: a tensor that outlives its rank, even a static one, credits its account when it
// goes.
MemoryAccount& immortal_account(const std::string& name, std::int64_t budget_bytes) {
  static std::mutex mutex;
  static auto& accounts = *new std::vector<std::unique_ptr<MemoryAccount>>;
  const std::lock_guard lock(mutex);
  return *accounts.emplace_back(std::make_unique<MemoryAccount>(name, budget_bytes));
}

}  // namespace

void run_thread_ranks(const ThreadRanksOptions& options, const RankFunction& function) {
  if (options.ranks < 1) {
    throw UserError({.operation = "comm.run_thread_ranks",
                     .what = "too few ranks",
                     .expected = "at least 1",
                     .got = std::to_string(options.ranks),
                     .fix = "set mesh.pp to 1 or more"});
  }
  install_accounting_allocator();
  World world(options.ranks);
  std::vector<MemoryAccount*> accounts;
  for (int rank = 0; rank < options.ranks; ++rank)
    accounts.push_back(&immortal_account("rank " + std::to_string(rank), options.device_bytes));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < options.ranks; ++rank) {
    threads.emplace_back([&, rank] { run_rank(world, rank, options, *accounts[rank], function); });
  }
  threads.clear();
  world.rethrow_failure();
}

}  // namespace strata

// Every process has a queue of events, ordered by due time, and one thread that calls back. Actions
// of other processes (a message, a loss) only add an event to it. One mutex guards all queues and
// links; it is not held during a callback.
#include "strata/transport/faulty_transport.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "strata/base/errors.h"

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

struct Callback {
  enum class Kind : std::uint8_t { kArrived, kFlushed, kLost };
  Kind kind = Kind::kLost;
  int peer = 0;
  OutgoingMessage message;  // for kArrived
};

class CopiedPayload final : public IncomingPayload {
 public:
  explicit CopiedPayload(const OutgoingMessage& message) : message_(message) {}
  void receive(void* to, std::size_t count) override {
    STRATA_CHECK(done_ + count <= message_.payload_bytes, "transport.receive");
    std::memcpy(to, static_cast<const char*>(message_.payload) + done_, count);
    done_ += count;
  }

 private:
  const OutgoingMessage& message_;
  std::size_t done_ = 0;
};

}  // namespace

struct FaultyNetwork::State {
  struct Process {
    TransportReceiver* receiver = nullptr;
    std::multimap<Clock::time_point, Callback> events;  // equal times: in the order of insertion
    std::condition_variable changed;
    bool ended = false;  // aborted or killed: no message arrives, no memory is read
    std::mutex memory;   // held while its memory is read, and to stop reads
    bool readable = true;
  };
  struct Link {
    bool broken = false;
    bool closed = false;  // its last message was sent
    Clock::time_point last_due{};
  };

  Faults faults;
  mutable std::mutex mutex;
  std::vector<std::unique_ptr<Process>> processes;
  std::vector<Link> links;  // from * processes + to
  std::mt19937_64 random;
  std::uint64_t messages = 0;

  int size() const { return static_cast<int>(processes.size()); }
  Link& link(int from, int to) { return links[static_cast<std::size_t>(from * size() + to)]; }

  void put(int process, Clock::time_point due, Callback event) {
    Process& it = *processes[static_cast<std::size_t>(process)];
    if (it.ended) return;
    it.events.emplace(due, std::move(event));
    it.changed.notify_all();
  }

  void break_locked(int a, int b) {
    if (link(a, b).broken) return;
    link(a, b).broken = link(b, a).broken = true;
    for (const auto& [at, peer] : {std::pair{a, b}, std::pair{b, a}}) {
      Process& it = *processes[static_cast<std::size_t>(at)];
      std::erase_if(it.events, [peer = peer](const auto& entry) {
        return entry.second.peer == peer && entry.second.kind == Callback::Kind::kArrived;
      });
      put(at, Clock::now(), {.peer = peer});
    }
  }

  // Without `mutex`, because a read of the memory may take long.
  void forbid_reading(int process) {
    Process& it = *processes[static_cast<std::size_t>(process)];
    const std::lock_guard lock(it.memory);
    it.readable = false;
  }

  void kill(int process) {
    forbid_reading(process);
    const std::lock_guard lock(mutex);
    for (int peer = 0; peer < size(); ++peer)
      if (peer != process) break_locked(process, peer);
  }

  void send(int from, int to, OutgoingMessage message) {
    Faults::Fate fate = Faults::Fate::kDeliver;
    {
      const std::lock_guard lock(mutex);
      const std::uint64_t number = messages++;
      if (faults.fate) fate = faults.fate({from, to, number, message.header});
      if (fate == Faults::Fate::kDeliver) return deliver(from, to, std::move(message));
      if (fate == Faults::Fate::kBreakLink) return break_locked(from, to);
    }
    if (fate == Faults::Fate::kKillSender) kill(from);
    if (fate == Faults::Fate::kKillReceiver) kill(to);
  }

  void deliver(int from, int to, OutgoingMessage message) {
    Link& on = link(from, to);
    if (on.broken || on.closed) return;
    const auto most = static_cast<std::uint64_t>(faults.most_delay.count());
    Clock::time_point due =
        Clock::now() + std::chrono::microseconds(most == 0 ? 0 : random() % (most + 1));
    if (!faults.reorder || message.last) due = std::max(due, on.last_due);
    on.last_due = std::max(on.last_due, due);
    const bool last = on.closed = message.last;
    put(to, due, {.kind = Callback::Kind::kArrived, .peer = from, .message = std::move(message)});
    if (last) put(from, due, {.kind = Callback::Kind::kFlushed, .peer = to});
  }

  void call_back(Process& process) {
    std::unique_lock lock(mutex);
    while (!process.ended) {
      if (process.events.empty()) {
        process.changed.wait(lock);
        continue;
      }
      const auto first = process.events.begin();
      if (first->first > Clock::now()) {
        const Clock::time_point due = first->first;
        process.changed.wait_until(lock, due);
        continue;
      }
      const Callback event = std::move(first->second);
      process.events.erase(first);
      lock.unlock();
      switch (event.kind) {
        case Callback::Kind::kArrived: {
          CopiedPayload payload(event.message);
          process.receiver->arrived(event.peer, event.message.header, payload);
          break;
        }
        case Callback::Kind::kFlushed:
          process.receiver->flushed(event.peer);
          break;
        case Callback::Kind::kLost:
          process.receiver->lost(event.peer);
      }
      lock.lock();
    }
  }
};

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(FaultyNetwork::State& state, int process) : state_(state), process_(process) {}
  ~FaultyTransport() override { abort(); }

  int process() const override { return process_; }
  int processes() const override { return state_.size(); }

  void start(TransportReceiver& receiver) override {
    self().receiver = &receiver;
    thread_ = std::thread([this] { state_.call_back(self()); });
  }

  void send(int peer, OutgoingMessage message) override {
    state_.send(process_, peer, std::move(message));
  }

  bool reads_in_place(int peer) const override {
    return peer != process_ && state_.faults.reads_in_place;
  }

  bool read(int peer, std::uint64_t address, std::size_t count, void* to) override {
    FaultyNetwork::State::Process& from = *state_.processes[static_cast<std::size_t>(peer)];
    const std::lock_guard lock(from.memory);
    if (from.readable) std::memcpy(to, reinterpret_cast<const void*>(address), count);
    return from.readable;
  }

  void abort() override {
    state_.forbid_reading(process_);
    {
      const std::lock_guard lock(state_.mutex);
      self().ended = true;
      self().events.clear();
      self().changed.notify_all();
      // As for a closed connection: after all sent messages.
      for (int peer = 0; peer < state_.size(); ++peer)
        if (peer != process_ && !state_.link(process_, peer).broken)
          state_.put(peer, std::max(Clock::now(), state_.link(process_, peer).last_due),
                     {.peer = process_});
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  FaultyNetwork::State::Process& self() const {
    return *state_.processes[static_cast<std::size_t>(process_)];
  }

  FaultyNetwork::State& state_;
  int process_;
  std::thread thread_;
};

FaultyNetwork::FaultyNetwork(int processes, Faults faults) : state_(std::make_unique<State>()) {
  state_->faults = std::move(faults);
  state_->random.seed(state_->faults.seed);
  for (int i = 0; i < processes; ++i)
    state_->processes.push_back(std::make_unique<State::Process>());
  state_->links.resize(static_cast<std::size_t>(processes * processes));
}

FaultyNetwork::~FaultyNetwork() = default;

std::unique_ptr<Transport> FaultyNetwork::transport(int process) {
  return std::make_unique<FaultyTransport>(*state_, process);
}

void FaultyNetwork::kill(int process) { state_->kill(process); }

void FaultyNetwork::break_link(int a, int b) {
  const std::lock_guard lock(state_->mutex);
  state_->break_locked(a, b);
}

std::uint64_t FaultyNetwork::messages() const {
  const std::lock_guard lock(state_->mutex);
  return state_->messages;
}

}  // namespace strata

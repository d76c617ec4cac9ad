/// Takes messages to the ranks of other processes and delivers theirs, and spreads failures.
///
/// A thread per peer sends from a queue, so that carry() never waits; another always has a receive
/// outstanding, so that a lost process is noticed at once. Each process says goodbye before it
/// closes its pipes: whoever closes without has crashed, and every rank ends with one error that
/// names the ranks of the lost process.
///
/// Neighbours get only word of a large tensor: their ranks read it in this process's memory, where
/// it is kept until they say so, or say goodbye, or are lost.
///
/// Threads  all methods from any thread; finish() once, after the last carry().
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "strata/base/errors.h"
#include "strata/comm/frame.h"
#include "strata/comm/loan_book.h"
#include "strata/comm/pipes.h"
#include "strata/comm/post_office.h"

namespace strata {

class MemoryAccount;

class Courier : public Carrier {
 public:
  struct Options {
    std::function<std::string(int rank)> name_of;        ///< in errors
    std::function<MemoryAccount&(int rank)> account_of;  ///< charged for what arrives for the rank
    /// Called with each status that a peer sends; may be empty.
    std::function<void(int process, std::span<const std::byte> status)> on_status;
    std::vector<pid_t> neighbours;             ///< comm/neighbours.h; empty: none
    std::chrono::milliseconds patience{3000};  ///< with peers that say nothing after a failure
  };

  /// Starts the threads; every process hosts office.local_ranks() ranks.
  Courier(PostOffice& office, Pipes& pipes, Options options);
  ~Courier() override;

  void carry(const Address& address, Message message) override;
  bool reads_in_place(int rank) const override;

  /// Ends all ranks here and, with the same error, in the other processes.
  void fail(const Error& error);

  /// To every peer that has not said goodbye.
  void send_status(std::span<const std::byte> status);

  /// Says goodbye, waits for that of every peer (after a failure only for a while), ends the
  /// threads. A peer that is lost meanwhile fails the office.
  void finish();

  bool has_left(int process) const;

 private:
  struct Letter {
    Frame frame;
    Message message;
  };
  struct Peer {
    std::mutex mutex;
    std::condition_variable filled;
    std::deque<Letter> letters;
    bool sends = true, speaks = true;  // until the goodbye of either side
    std::thread sender, receiver;
  };

  int process_of(int rank) const { return rank / office_.local_ranks(); }
  void enqueue(int process, Letter letter);
  void send_letters(int process);
  void receive_letters(int process);
  void deliver(int process, const Frame& frame);
  void deliver_loan(int process, const Frame& frame);
  void lose(int process);
  void report_lost(int process);
  void tell_failure(const Error& error, int precedence);
  void ended(int process, bool Peer::* direction);
  void wake();
  std::string ranks_of(int process) const;

  PostOffice& office_;
  Pipes& pipes_;
  Options options_;
  LoanBook lent_;
  std::vector<std::unique_ptr<Peer>> peers_;  // null at this process's own place
  mutable std::mutex mutex_;                  // of the peers' sends and speaks
  std::condition_variable changed_;
  bool abandoned_ = false;  // pipes end by our own doing
  std::mutex telling_;
  bool finished_ = false;
};

}  // namespace strata

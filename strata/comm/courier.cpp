#include "strata/comm/courier.h"

#include <utility>

#include "strata/comm/failure.h"
#include "strata/comm/remote_tensor.h"
#include "strata/device/account.h"

namespace strata {
namespace {

constexpr std::uint64_t kLent = 1 << 16;  // bytes: above, a neighbour reads them itself

std::span<const std::byte> bytes_of(const Message& message) {
  return {static_cast<const std::byte*>(message.tensor.const_data_ptr()), message.tensor.nbytes()};
}

}  // namespace

Courier::Courier(PostOffice& office, Pipes& pipes, Options options)
    : office_(office), pipes_(pipes), options_(std::move(options)) {
  peers_.resize(pipes_.processes());
  options_.neighbours.resize(pipes_.processes());
  for (int process = 0; process < pipes_.processes(); ++process)
    if (process != pipes_.process()) peers_[process] = std::make_unique<Peer>();
  for (int process = 0; process < pipes_.processes(); ++process) {
    if (!peers_[process]) continue;
    peers_[process]->sender = std::thread([this, process] { send_letters(process); });
    peers_[process]->receiver = std::thread([this, process] { receive_letters(process); });
  }
}

Courier::~Courier() { finish(); }

void Courier::carry(const Address& address, Message message) {
  const int process = process_of(address.to);
  Letter letter{frame_of(address, message), {}};
  if (letter.frame.tensor_bytes >= kLent && letter.frame.numbers == 0 &&
      reads_in_place(address.to)) {
    become_loan(letter.frame, message.tensor, lent_.lend(process, message.tensor));
    message.tensor.reset();
  }
  if (!letter.frame.fits()) letter.message = std::move(message);
  enqueue(process, std::move(letter));
}

bool Courier::reads_in_place(int rank) const { return options_.neighbours[process_of(rank)] != 0; }

void Courier::enqueue(int process, Letter letter) {
  Peer& peer = *peers_[process];
  {
    const std::lock_guard lock(peer.mutex);
    peer.letters.push_back(std::move(letter));
  }
  peer.filled.notify_one();
}

void Courier::send_letters(int process) {
  Peer& peer = *peers_[process];
  try {
    for (FrameKind last = FrameKind::kMessage; last != FrameKind::kGoodbye;) {
      std::unique_lock lock(peer.mutex);
      peer.filled.wait(lock, [&] { return !peer.letters.empty(); });
      const Letter letter = std::move(peer.letters.front());
      peer.letters.pop_front();
      lock.unlock();
      last = letter.frame.kind;
      pipes_.send(process, &letter.frame, sizeof(Frame));
      if (letter.frame.fits()) continue;
      if (letter.frame.numbers > 0)
        pipes_.send(process, letter.message.numbers.data(),
                    letter.message.numbers.size() * sizeof(double));
      if (letter.frame.tensor_bytes > 0)
        pipes_.send(process, letter.message.tensor.const_data_ptr(), letter.frame.tensor_bytes);
    }
  } catch (const PipeBroken&) {
    lose(process);
  }
  ended(process, &Peer::sends);
}

void Courier::receive_letters(int process) {
  try {
    Frame frame;
    do {
      pipes_.receive(process, &frame, sizeof(Frame));
      deliver(process, frame);
    } while (frame.kind != FrameKind::kGoodbye);
    lent_.all_returned(process);  // its ranks have ended
  } catch (const PipeBroken&) {
    lose(process);
  } catch (const Error& error) {
    fail(error);
  } catch (const std::exception& error) {
    fail(InternalError({.operation = "comm.receive",
                        .where = options_.name_of(office_.first_rank()),
                        .what = "an unexpected exception",
                        .got = error.what()}));
  }
  ended(process, &Peer::speaks);
}

void Courier::deliver(int process, const Frame& frame) {
  if (frame.kind == FrameKind::kGoodbye) return;
  if (frame.kind == FrameKind::kReturn) return lent_.returned(process, frame.loan);
  if (frame.kind == FrameKind::kLoan) return deliver_loan(process, frame);
  const auto receive_message = [&] {
    Message message = message_of(frame);
    if (frame.fits()) return message;
    if (frame.numbers > 0)
      pipes_.receive(process, message.numbers.data(), frame.numbers * sizeof(double));
    if (frame.tensor_bytes > 0)
      pipes_.receive(process, message.tensor.data_ptr(), frame.tensor_bytes);
    return message;
  };
  if (frame.kind == FrameKind::kMessage) {
    const AccountScope scope(options_.account_of(frame.address.to));
    office_.post(frame.address, receive_message());
  } else if (frame.kind == FrameKind::kStatus) {
    const Message message = receive_message();
    if (options_.on_status) options_.on_status(process, bytes_of(message));
  } else {
    const Message message = receive_message();
    const Failure failure = read_failure(bytes_of(message));
    office_.fail(failure.error, failure.precedence);
    wake();
  }
}

void Courier::deliver_loan(int process, const Frame& frame) {
  const auto give_back = [this, process, loan = frame.loan] {
    Letter letter;
    letter.frame.kind = FrameKind::kReturn;
    letter.frame.loan = loan;
    enqueue(process, std::move(letter));
  };
  // A lender that fails tells it before it frees anything.
  const auto check = [this, process](bool read) {
    if (!read) report_lost(process);
    if (office_.failed()) throw Cancelled();
  };
  Message message;
  message.remote = std::make_shared<RemoteTensor>(
      frame, RemoteTensor::Owner{options_.neighbours[process], give_back, check});
  office_.post(frame.address, std::move(message));
}

std::string Courier::ranks_of(int process) const {
  const int first = process * office_.local_ranks(), last = first + office_.local_ranks() - 1;
  std::string names = options_.name_of(first);
  if (last - first > 3) return names + " to " + options_.name_of(last);
  for (int rank = first + 1; rank <= last; ++rank) names += ", " + options_.name_of(rank);
  return names;
}

void Courier::lose(int process) {
  {
    const std::lock_guard lock(mutex_);
    if (abandoned_) return;  // our own doing
    // After its goodbye a process may close at any time, and nothing may be left to tell it.
    if (!peers_[process]->speaks) return;
  }
  report_lost(process);
}

void Courier::report_lost(int process) {
  // Errors of ranks come first: a process may be lost because of them.
  tell_failure(
      SystemError({.operation = "comm.peer",
                   .where = ranks_of(process),
                   .what = "lost",
                   .expected = "a goodbye from process " + std::to_string(process) + " of " +
                               std::to_string(pipes_.processes()),
                   .got = "a closed connection: it was killed, crashed, or cannot be reached",
                   .fix = "look for its own last words, then go on from the last checkpoint with "
                          "--resume"}),
      pipes_.processes() + process);
}

void Courier::fail(const Error& error) { tell_failure(error, pipes_.process()); }

void Courier::tell_failure(const Error& error, int precedence) {
  const std::lock_guard lock(telling_);  // the ranks end, but no goodbye may overtake the letters
  if (!office_.fail(located(error, ""), precedence)) return;
  const std::vector<std::byte> bytes = write_failure(error, precedence);
  for (int process = 0; process < pipes_.processes(); ++process) {
    if (!peers_[process]) continue;
    Letter letter;
    letter.frame = frame_of(FrameKind::kFailure, bytes, letter.message);
    enqueue(process, std::move(letter));
  }
  wake();
}

void Courier::wake() {
  {
    const std::lock_guard lock(mutex_);
  }  // finish() may be between its check and its wait
  changed_.notify_all();
}

void Courier::send_status(std::span<const std::byte> status) {
  for (int process = 0; process < pipes_.processes(); ++process) {
    if (!peers_[process]) continue;
    Letter letter;
    letter.frame = frame_of(FrameKind::kStatus, status, letter.message);
    enqueue(process, std::move(letter));
  }
}

bool Courier::has_left(int process) const {
  const std::lock_guard lock(mutex_);
  return peers_[process] && !peers_[process]->speaks;
}

void Courier::ended(int process, bool Peer::* direction) {
  {
    const std::lock_guard lock(mutex_);
    (*peers_[process]).*direction = false;
  }
  changed_.notify_all();
}

void Courier::finish() {
  if (finished_) return;
  finished_ = true;
  {
    const std::lock_guard lock(telling_);
    for (int process = 0; process < pipes_.processes(); ++process)
      if (peers_[process]) enqueue(process, Letter{});
  }
  std::unique_lock lock(mutex_);
  const auto all_left = [&] {
    for (const std::unique_ptr<Peer>& peer : peers_)
      if (peer && (peer->speaks || peer->sends)) return false;
    return true;
  };
  changed_.wait(lock, [&] { return all_left() || office_.failed(); });
  changed_.wait_for(lock, options_.patience, all_left);
  abandoned_ = true;
  lock.unlock();
  pipes_.abort();
  for (int process = 0; process < pipes_.processes(); ++process) {
    if (!peers_[process]) continue;
    peers_[process]->sender.join();
    peers_[process]->receiver.join();
    lent_.all_returned(process);
  }
  office_.clear();  // loans that no rank took
}

}  // namespace strata

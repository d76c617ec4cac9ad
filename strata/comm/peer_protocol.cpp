// Order matters in three places only; a transport may reorder all other messages. A shutdown frame
// comes last. A failure is queued before any shutdown frame (telling_), so that a peer never
// mistakes a failed process for one that ended normally. An exported buffer is kept until its
// reader releases it or can no longer read.
#include "strata/comm/peer_protocol.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "strata/base/errors.h"
#include "strata/device/account.h"

namespace strata {
namespace {

constexpr std::uint64_t kExported = 1 << 16;  // bytes: above, a same-host peer reads them itself

std::span<const std::byte> bytes_of(const Message& message) {
  return {static_cast<const std::byte*>(message.tensor.const_data_ptr()), message.tensor.nbytes()};
}

Message receive_message(const Frame& frame, IncomingPayload& payload) {
  Message message = message_of(frame);
  if (frame.fits()) return message;
  if (frame.numbers > 0) {
    payload.receive(message.numbers.data(), frame.numbers * sizeof(double));
  } else {
    payload.receive(message.tensor.data_ptr(), frame.tensor_bytes);
  }
  return message;
}

}  // namespace

PeerProtocol::PeerProtocol(Mailboxes& mailboxes, Transport& transport, Options options)
    : mailboxes_(mailboxes),
      transport_(transport),
      options_(std::move(options)),
      ending_(all_of(transport)) {
  transport_.start(*this);
}

PeerProtocol::Ending PeerProtocol::all_of(const Transport& transport) {
  Ending ending{.peers = std::vector<Peer>(static_cast<std::size_t>(transport.processes()))};
  ending.peers[static_cast<std::size_t>(transport.process())] = {.sends = false, .speaks = false};
  return ending;
}

PeerProtocol::~PeerProtocol() { finish(); }

template <typename Action>
void PeerProtocol::for_each_peer(const Action& action) const {
  for (int process = 0; process < transport_.processes(); ++process)
    if (process != transport_.process()) action(process);
}

void PeerProtocol::send(const Address& address, Message message) {
  const int process = process_of(address.to);
  Frame frame = frame_of(address, message);
  if (frame.tensor_bytes >= kExported && transport_.reads_in_place(process)) {
    become_export(frame, message.tensor, exported_.add(process, message.tensor));
    message.tensor.reset();
  }
  send_frame(process, frame, std::move(message));
}

void PeerProtocol::send_frame(int process, const Frame& frame, Message message) {
  OutgoingMessage outgoing;
  std::memcpy(outgoing.header.data(), &frame, sizeof frame);
  outgoing.last = frame.kind == FrameKind::kShutdown;
  if (!frame.fits()) {
    const auto kept = std::make_shared<const Message>(std::move(message));
    outgoing.payload = frame.numbers > 0 ? static_cast<const void*>(kept->numbers.data())
                                         : kept->tensor.const_data_ptr();
    outgoing.payload_bytes = frame.bytes();
    outgoing.owner = kept;
  }
  transport_.send(process, std::move(outgoing));
}

bool PeerProtocol::reads_in_place(int rank) const {
  return transport_.reads_in_place(process_of(rank));
}

void PeerProtocol::arrived(int process, const MessageHeader& header, IncomingPayload& payload) {
  Frame frame;
  std::memcpy(&frame, header.data(), sizeof frame);
  try {
    deliver(process, frame, payload);
  } catch (const TransportBroken&) {
    throw;
  } catch (const Error& error) {
    fail(error, FailureOf::kRank);
  } catch (const std::exception& error) {
    fail(located(to_error(error), options_.name_of(mailboxes_.first_rank())), FailureOf::kRank);
  }
}

void PeerProtocol::deliver(int process, const Frame& frame, IncomingPayload& payload) {
  switch (frame.kind) {
    case FrameKind::kMessage: {
      const AccountScope scope(options_.account_of(frame.address.to));
      return mailboxes_.post(frame.address, receive_message(frame, payload));
    }
    case FrameKind::kExport:
      return deliver_export(process, frame);
    case FrameKind::kRelease:
      return exported_.release(process, frame.exported);
    case FrameKind::kStatus: {
      const Message message = receive_message(frame, payload);
      if (options_.on_status) options_.on_status(process, bytes_of(message));
      return;
    }
    case FrameKind::kFailure: {
      const Message message = receive_message(frame, payload);
      const Failure failure = read_failure(bytes_of(message));
      mailboxes_.fail(failure.error, failure.precedence);
      return ending_.change([](Ending& it) { it.failed = true; });
    }
    case FrameKind::kShutdown: {
      exported_.release_all(process);  // its ranks have ended
      return ending_.change(
          [&](Ending& it) { it.peers[static_cast<std::size_t>(process)].speaks = false; });
    }
  }
}

void PeerProtocol::deliver_export(int process, const Frame& frame) {
  const auto release = [this, process, number = frame.exported] {
    Frame released;
    released.kind = FrameKind::kRelease;
    released.exported = number;
    send_frame(process, released);
  };
  // An exporter that fails reports it before it frees anything.
  const auto read = [this, process](std::uint64_t address, std::size_t count, void* to) {
    if (!transport_.read(process, address, count, to)) report_lost(process);
    if (mailboxes_.failed()) throw Cancelled();
  };
  Message message;
  message.of_device = frame.of_device;
  message.remote = std::make_shared<RemoteBuffer>(frame, RemoteBuffer::Source{read, release});
  mailboxes_.post(frame.address, std::move(message));
}

std::string PeerProtocol::ranks_of(int process) const {
  const int first = process * mailboxes_.local_ranks(), last = first + mailboxes_.local_ranks() - 1;
  std::string names = options_.name_of(first);
  if (last - first > 3) return names + " to " + options_.name_of(last);
  for (int rank = first + 1; rank <= last; ++rank) names += ", " + options_.name_of(rank);
  return names;
}

void PeerProtocol::flushed(int process) {
  ending_.change([&](Ending& it) { it.peers[static_cast<std::size_t>(process)].sends = false; });
}

void PeerProtocol::lost(int process) {
  // After its shutdown frame a process may close at any time and need not send anything else.
  const bool expected = ending_.change([&](Ending& it) {
    Peer& peer = it.peers[static_cast<std::size_t>(process)];
    if (!it.abandoned && peer.speaks) return false;
    peer.sends = false;
    return true;
  });
  if (expected) return;
  report_lost(process);
  ending_.change([&](Ending& it) {
    it.peers[static_cast<std::size_t>(process)] = {.sends = false, .speaks = false};
  });
}

void PeerProtocol::report_lost(int process) {
  // Errors of ranks come first: a process may be lost because of them.
  tell_failure(
      SystemError({.operation = "comm.peer",
                   .where = ranks_of(process),
                   .what = "lost",
                   .expected = "a shutdown message from process " + std::to_string(process) +
                               " of " + std::to_string(transport_.processes()),
                   .got = "a closed connection: it was killed, crashed, or cannot be reached",
                   .fix = "look for its last messages, then resume from the last checkpoint with "
                          "--resume"}),
      transport_.processes() + process);
}

// Errors of ranks precede losses, and these precede errors that a loss may have caused
// (report_lost).
void PeerProtocol::fail(const Error& error, FailureOf of) {
  const int after = of == FailureOf::kPeer ? 2 * transport_.processes() : 0;
  tell_failure(error, after + transport_.process());
}

void PeerProtocol::tell_failure(const Error& error, int precedence) {
  const std::lock_guard lock(telling_);
  if (!mailboxes_.fail(to_exception(error), precedence)) return;
  const std::vector<std::byte> bytes = write_failure(error, precedence);
  for_each_peer([&](int process) {
    Message message;
    const Frame frame = frame_of(FrameKind::kFailure, bytes, message);
    send_frame(process, frame, std::move(message));
  });
  ending_.change([](Ending& it) { it.failed = true; });
}

void PeerProtocol::send_status(std::span<const std::byte> status) {
  for_each_peer([&](int process) {
    Message message;
    const Frame frame = frame_of(FrameKind::kStatus, status, message);
    send_frame(process, frame, std::move(message));
  });
}

void PeerProtocol::finish() {
  if (finished_) return;
  finished_ = true;
  {
    const std::lock_guard lock(telling_);
    for_each_peer([&](int process) { send_frame(process, Frame{}); });
  }
  const auto all_left = [](const Ending& it) {
    return std::ranges::none_of(it.peers,
                                [](const Peer& peer) { return peer.speaks || peer.sends; });
  };
  ending_.wait([&](const Ending& it) { return it.failed || all_left(it); });
  ending_.wait_for(options_.shutdown_timeout, all_left);
  ending_.change([](Ending& it) { it.abandoned = true; });
  transport_.abort();
  for_each_peer([&](int process) { exported_.release_all(process); });
  mailboxes_.clear();  // imports that no rank took
}

}  // namespace strata

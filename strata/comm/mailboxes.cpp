// Invariants:
//  1. An address (sender, receiver, group, tag) has at most one message at a time; a second one is
//     a bug of the sender.
//  2. Messages are dropped outside of the locks: freeing a tensor may call back into an account.
#include "strata/comm/mailboxes.h"

#include <utility>

#include "strata/base/errors.h"

namespace strata {

Mailboxes::Mailboxes(int world_size, int first_rank, int local_ranks)
    : world_size_(world_size),
      first_rank_(first_rank),
      devices_(static_cast<std::size_t>(local_ranks)),
      progress_(world_size) {
  for (int i = 0; i < local_ranks; ++i) mailboxes_.push_back(std::make_unique<Monitor<Mailbox>>());
}

void Mailboxes::post(const Address& address, Message message) {
  if (!is_local(address.to)) {
    STRATA_CHECK(remote_ != nullptr, "comm.post");
    return remote_->send(address, std::move(message));
  }
  mailbox_of(address.to).change([&](Mailbox& mailbox) {
    const bool fresh = mailbox.messages.emplace(address, std::move(message)).second;
    STRATA_CHECK(fresh, "comm.post");
  });
}

Message Mailboxes::take(const Address& address) {
  bool waits = false;
  const auto there = [&](const Mailbox& mailbox) {
    if (mailbox.failed || mailbox.messages.contains(address)) return true;
    if (!std::exchange(waits, true))
      progress_.begin_wait(address.to, address.from, address.tag.kind < 0);
    return false;
  };
  return mailbox_of(address.to).when(there, [&](Mailbox& mailbox) {
    if (waits) progress_.end_wait(address.to);
    if (mailbox.failed) throw Cancelled();
    return std::move(mailbox.messages.extract(address).mapped());
  });
}

bool Mailboxes::holds(const Address& address) const {
  return mailbox_of(address.to).look([&](const Mailbox& mailbox) {
    return mailbox.messages.contains(address);
  });
}

bool Mailboxes::reads_in_place(int rank) const {
  return is_local(rank) || remote_->reads_in_place(rank);
}

void Mailboxes::clear() {
  for (const auto& mailbox : mailboxes_)
    mailbox->change([](Mailbox& it) { return std::exchange(it.messages, {}); });
}

bool Mailboxes::fail(std::exception_ptr error, int precedence) {
  {
    const std::lock_guard lock(error_mutex_);
    if (failed_ && precedence >= precedence_) return false;
    error_ = std::move(error);
    precedence_ = precedence;
    failed_ = true;
  }
  for (const auto& mailbox : mailboxes_) mailbox->change([](Mailbox& it) { it.failed = true; });
  return true;
}

void Mailboxes::fail_everywhere(const Error& error, FailureOf of) {
  if (remote_) return remote_->fail(error, of);
  fail(to_exception(error));
}

void Mailboxes::rethrow_failure() const {
  const std::lock_guard lock(error_mutex_);
  if (error_) std::rethrow_exception(error_);
}

}  // namespace strata

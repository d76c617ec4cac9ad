// Invariants:
//  1. An address (sender, receiver, group, tag) has at most one message at a time; a second one is
//     a bug of the sender.
//  2. fail() sets failed_ before it locks each mailbox to notify: a rank that has checked but not
//     yet begun to wait holds that lock, so none misses it.
//  3. Messages are dropped outside of the locks: freeing a tensor may call back into an account.
#include "strata/comm/mailboxes.h"

#include <utility>

#include "strata/base/errors.h"

namespace strata {

Mailboxes::Mailboxes(int world_size, int first_rank, int local_ranks)
    : world_size_(world_size),
      first_rank_(first_rank),
      devices_(static_cast<std::size_t>(local_ranks)),
      progress_(world_size) {
  for (int i = 0; i < local_ranks; ++i) mailboxes_.push_back(std::make_unique<Mailbox>());
}

void Mailboxes::post(const Address& address, Message message) {
  if (!is_local(address.to)) {
    STRATA_CHECK(remote_ != nullptr, "comm.post");
    return remote_->send(address, std::move(message));
  }
  Mailbox& mailbox = mailbox_of(address.to);
  {
    const std::lock_guard lock(mailbox.mutex);
    const bool fresh = mailbox.messages.emplace(address, std::move(message)).second;
    STRATA_CHECK(fresh, "comm.post");
  }
  mailbox.arrived.notify_all();
}

Message Mailboxes::take(const Address& address) {
  Mailbox& mailbox = mailbox_of(address.to);
  std::unique_lock lock(mailbox.mutex);
  decltype(mailbox.messages.find({})) found;
  const auto there = [&] {
    found = mailbox.messages.find(address);
    return failed_ || found != mailbox.messages.end();
  };
  if (!there()) {
    progress_.begin_wait(address.to, address.from, address.tag.kind < 0);
    mailbox.arrived.wait(lock, there);
    progress_.end_wait(address.to);
  }
  if (failed_) throw Cancelled();
  Message message = std::move(found->second);
  mailbox.messages.erase(found);
  return message;
}

bool Mailboxes::reads_in_place(int rank) const {
  return is_local(rank) || remote_->reads_in_place(rank);
}

void Mailboxes::clear() {
  for (const std::unique_ptr<Mailbox>& mailbox : mailboxes_) {
    std::map<Address, Message> dropped;
    const std::lock_guard lock(mailbox->mutex);
    dropped.swap(mailbox->messages);
  }
}

bool Mailboxes::fail(std::exception_ptr error, int precedence) {
  {
    const std::lock_guard lock(error_mutex_);
    if (failed_ && precedence >= precedence_) return false;
    error_ = std::move(error);
    precedence_ = precedence;
    failed_ = true;
  }
  for (const std::unique_ptr<Mailbox>& mailbox : mailboxes_) {
    const std::lock_guard lock(mailbox->mutex);  // a rank between its check and its wait
    mailbox->arrived.notify_all();
  }
  return true;
}

void Mailboxes::fail_everywhere(const Error& error) {
  if (remote_) return remote_->fail(error);
  fail(to_exception(error));
}

void Mailboxes::rethrow_failure() const {
  const std::lock_guard lock(error_mutex_);
  if (error_) std::rethrow_exception(error_);
}

}  // namespace strata

#include "strata/base/completion.h"

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "strata/base/errors.h"

namespace strata {

class Promise::State final : public Completion::Source {
 public:
  void end(std::exception_ptr error) {
    std::vector<Completion::Continuation> calls;
    {
      const std::lock_guard lock(mutex_);
      STRATA_CHECK(!ended_, "base.completion");
      error_ = error;
      ended_ = true;
      calls.swap(calls_);
      // Notify under the lock: a waiter may destroy the last other handle as soon as the lock is
      // released.
      changed_.notify_all();
    }
    for (Completion::Continuation& call : calls) call(error);
  }

  bool ready() const override {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

  void wait() const override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_; });
    if (error_) std::rethrow_exception(error_);
  }

  bool then(Completion::Continuation& call) const override {
    {
      const std::lock_guard lock(mutex_);
      if (!ended_) {
        calls_.push_back(std::move(call));
        return true;
      }
    }
    call(error_);  // error_ does not change any more
    return true;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable std::vector<Completion::Continuation> calls_;
  bool ended_ = false;
  std::exception_ptr error_;
};

std::exception_ptr Completion::error() const noexcept {
  try {
    wait();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

void Completion::settle() const noexcept { (void)error(); }

void Completion::then(Continuation call) const {
  if (!source_) return call(nullptr);
  STRATA_CHECK(source_->then(call), "base.completion");
}

Completion Completion::and_then(std::function<Completion()> next) const {
  const Promise promise;
  then([promise, next = std::move(next)](std::exception_ptr error) mutable {
    Completion following;
    try {
      if (!error) following = next();
    } catch (...) {
      error = std::current_exception();
    }
    next = nullptr;  // releases the captures of `next` before the promise ends
    if (error) return promise.fail(std::move(error));
    following.then([promise](std::exception_ptr last) { promise.end(std::move(last)); });
  });
  return promise.completion();
}

Promise::Promise() : state_(std::make_shared<State>()) {}
Completion Promise::completion() const { return Completion(state_); }
void Promise::end(std::exception_ptr error) const { state_->end(std::move(error)); }

Completion all_of(const std::vector<Completion>& parts) {
  struct Rest {
    explicit Rest(std::size_t parts) : left(parts), errors(parts) {}
    Promise promise;
    std::atomic<std::size_t> left;
    std::vector<std::exception_ptr> errors;
  };
  if (parts.empty()) return {};
  const auto rest = std::make_shared<Rest>(parts.size());
  for (std::size_t part = 0; part < parts.size(); ++part)
    parts[part].then([rest, part](std::exception_ptr error) {
      rest->errors[part] = std::move(error);
      if (--rest->left > 0) return;
      for (const std::exception_ptr& first : rest->errors)
        if (first) return rest->promise.fail(first);
      rest->promise.complete();
    });
  return rest->promise.completion();
}

}  // namespace strata

/// Says whether work that runs asynchronously has ended, lets threads wait for it, and continues it.
///
///     Promise promise;                                        // the side that does the work
///     const Completion done = promise.completion();
///     const Completion both = done.and_then([&] { return file.read(...); });
///     promise.complete();                                     // or promise.fail(error)
///     both.wait();                                            // throws what the work threw
///
/// A completion is a value: copies are handles of the same work. Work that does not end on a thread of
/// the process, as a device's does, is a Completion::Source of its own.
///
/// Threads  any. A continuation runs on the thread that ends the work, or at once on the calling thread
///          where the work has ended. A wait may return before the continuations have run.
/// Errors   wait() throws what the work threw, to each caller and every time.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace strata {

class Completion {
 public:
  /// Null: the work succeeded. A continuation throws nothing.
  using Continuation = std::function<void(std::exception_ptr error)>;

  /// Work that has not ended when its completion is made.
  class Source {
   public:
    virtual ~Source() = default;
    virtual bool ready() const = 0;
    virtual void wait() const = 0;
    /// False, and `call` is unused: this work cannot call back, a thread has to wait for it.
    virtual bool then(Continuation& /*call*/) const { return false; }
  };

  Completion() = default;  ///< of work that has succeeded
  explicit Completion(std::shared_ptr<const Source> source) : source_(std::move(source)) {}

  bool ready() const { return !source_ || source_->ready(); }  ///< never waits
  void wait() const {
    if (source_) source_->wait();
  }
  void settle() const noexcept;  ///< waits; drops the error
  /// What the work threw; null: it succeeded. Waits.
  std::exception_ptr error() const noexcept;

  /// Calls `call` once when the work has ended. InternalError: the source cannot call back.
  void then(Continuation call) const;
  /// Starts `next` when this has succeeded; ends when the work that it returns has ended. What failed
  /// first is the result's error.
  Completion and_then(std::function<Completion()> next) const;

  const Source* source() const { return source_.get(); }  ///< null: the work has succeeded

 private:
  std::shared_ptr<const Source> source_;
};

/// Ends the work that a completion stands for. Copies end the same work.
class Promise {
 public:
  Promise();
  Completion completion() const;
  void complete() const { end(nullptr); }
  void fail(std::exception_ptr error) const { end(std::move(error)); }
  /// Once. Null: the work succeeded.
  void end(std::exception_ptr error) const;

 private:
  class State;
  std::shared_ptr<State> state_;
};

/// Ends when all have ended, with the error of the first in the list that has one.
Completion all_of(const std::vector<Completion>& parts);

}  // namespace strata

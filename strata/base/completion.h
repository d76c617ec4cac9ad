/// Reports whether asynchronous work has ended, and lets threads wait for it or continue it.
///
///     Promise promise;                                        // the side that does the work
///     const Completion done = promise.completion();
///     const Completion both = done.and_then([&] { return file.read(...); });
///     promise.complete();                                     // or promise.fail(error)
///     both.wait();                                            // throws what the work threw
///
/// A completion is a value: copies are handles of the same work. Work that does not end on a thread
/// of the process, such as a device's, derives its own Completion::Source.
///
/// Threads  any. A continuation runs on the thread that ends the work, or at once on the calling
///          thread if the work has ended. wait() may return before the continuations have run.
/// Errors   wait() throws the error of the work, to each caller and every time.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace strata {

class Completion {
 public:
  /// A null error means that the work succeeded. A continuation must not throw.
  using Continuation = std::function<void(std::exception_ptr error)>;

  /// Represents work that may not have ended yet.
  class Source {
   public:
    virtual ~Source() = default;
    virtual bool ready() const = 0;
    virtual void wait() const = 0;
    /// Returns false, without using `call`, if this work cannot call back; then a thread has to
    /// wait.
    virtual bool then(Continuation& /*call*/) const { return false; }
  };

  Completion() = default;  ///< work that has succeeded
  explicit Completion(std::shared_ptr<const Source> source) : source_(std::move(source)) {}

  bool ready() const { return !source_ || source_->ready(); }  ///< never waits
  void wait() const {
    if (source_) source_->wait();
  }
  void settle() const noexcept;  ///< waits; drops the error
  /// Waits. Returns the error of the work, or null if it succeeded.
  std::exception_ptr error() const noexcept;

  /// Calls `call` once when the work has ended. Throws InternalError if the source cannot call
  /// back.
  void then(Continuation call) const;
  /// Starts `next` when this work has succeeded. The result ends when the work returned by `next`
  /// has ended, and has the error of the first failure.
  Completion and_then(std::function<Completion()> next) const;

  const Source* source() const { return source_.get(); }  ///< null if the work has succeeded

 private:
  std::shared_ptr<const Source> source_;
};

/// Ends the work of its completion. Copies end the same work.
class Promise {
 public:
  Promise();
  Completion completion() const;
  void complete() const { end(nullptr); }
  void fail(std::exception_ptr error) const { end(std::move(error)); }
  /// Ends the work once: with null it succeeded. Throws InternalError at a second call.
  void end(std::exception_ptr error) const;

 private:
  class State;
  std::shared_ptr<State> state_;
};

/// Ends when all parts have ended, with the error of the first part in the list that failed.
Completion all_of(const std::vector<Completion>& parts);

}  // namespace strata

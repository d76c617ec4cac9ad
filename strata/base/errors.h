/// Carries every failure in one shape: `[folder.operation] where: what`, expected, got, fix.
///
/// Three kinds, three exit codes: the user's input (2), the system: a peer, a disk, memory (3),
/// our own bug (4). Static words come first, values last; the fix is one executable action.
#pragma once

#include <cstdint>
#include <exception>
#include <sstream>
#include <string>

namespace strata {

enum class ErrorKind : std::uint8_t { kUser, kSystem, kInternal };

/// The parts of an error; empty ones are not printed.
struct ErrorText {
  std::string operation;  ///< "folder.operation", e.g. "comm.receive"
  std::string where;      ///< the place: "rank 2 (pp 2/4)", "recipe.yaml:3:9"
  std::string what;       ///< one clause, no final full stop
  std::string expected;
  std::string got;
  std::string fix;
};

class Error : public std::exception {
 public:
  Error(ErrorKind kind, ErrorText text);
  ErrorKind kind() const { return kind_; }
  const ErrorText& text() const { return text_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  ErrorKind kind_;
  ErrorText text_;
  std::string message_;
};

struct UserError : Error {
  explicit UserError(ErrorText text) : Error(ErrorKind::kUser, std::move(text)) {}
};
struct SystemError : Error {
  explicit SystemError(ErrorText text) : Error(ErrorKind::kSystem, std::move(text)) {}
};
struct InternalError : Error {
  explicit InternalError(ErrorText text) : Error(ErrorKind::kInternal, std::move(text)) {}
};

/// Exit code of the program that ends with `error`: 2, 3 or 4; 4 for exceptions that aren't ours.
int exit_code(const std::exception& error);

namespace internal {
[[noreturn]] void check_failed(const char* file, int line, const char* operation,
                               const char* condition, const std::string& values);
}  // namespace internal

/// Refuses to go on when an invariant of ours is broken (InternalError).
#define STRATA_CHECK(condition, operation)                                             \
  do {                                                                                 \
    if (!(condition)) [[unlikely]]                                                     \
      ::strata::internal::check_failed(__FILE__, __LINE__, operation, #condition, ""); \
  } while (false)

/// The same for an equality; prints both values.
#define STRATA_CHECK_EQ(a, b, operation)                                            \
  do {                                                                              \
    const auto& strata_a_ = (a);                                                    \
    const auto& strata_b_ = (b);                                                    \
    if (!(strata_a_ == strata_b_)) [[unlikely]] {                                   \
      std::ostringstream strata_values_;                                            \
      strata_values_ << strata_a_ << " against " << strata_b_;                      \
      ::strata::internal::check_failed(__FILE__, __LINE__, operation, #a " == " #b, \
                                       strata_values_.str());                       \
    }                                                                               \
  } while (false)

}  // namespace strata

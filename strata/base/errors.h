/// Carries every failure in one shape: `[folder.operation] where: what`, expected, got, fix.
///
/// The three kinds have three exit codes: the user's input (2), the system, such as a peer, a disk
/// or memory (3), and a bug in Strata (4). Fixed words come first and values last; the fix is one
/// action that works. Errors travel between ranks and processes; the receiver puts the rank in
/// front of their place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

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

/// Returns the exit code of a program that ends with `error`: 2, 3 or 4; 4 for other exceptions.
int exit_code(const std::exception& error);

[[noreturn]] void check_failed(const char* file, int line, const char* operation,
                               const char* condition, const std::string& values);

/// Throws InternalError if an invariant of Strata is broken.
#define STRATA_CHECK(condition, operation)                                   \
  do {                                                                       \
    if (!(condition)) [[unlikely]]                                           \
      ::strata::check_failed(__FILE__, __LINE__, operation, #condition, ""); \
  } while (false)

/// Checks that two values are equal; the error prints both.
#define STRATA_CHECK_EQ(a, b, operation)                                                         \
  do {                                                                                           \
    const auto& strata_a_ = (a);                                                                 \
    const auto& strata_b_ = (b);                                                                 \
    if (!(strata_a_ == strata_b_)) [[unlikely]] {                                                \
      std::ostringstream strata_values_;                                                         \
      strata_values_ << strata_a_ << " against " << strata_b_;                                   \
      ::strata::check_failed(__FILE__, __LINE__, operation, #a " == " #b, strata_values_.str()); \
    }                                                                                            \
  } while (false)

/// Converts any exception: an Error stays as it is. Failures to get memory or threads become
/// SystemError. File system errors become UserError unless the disk failed. Everything else becomes
/// InternalError.
Error to_error(const std::exception& error);

/// Returns the error as a UserError, SystemError or InternalError, according to its kind.
std::exception_ptr to_exception(const Error& error);
[[noreturn]] void throw_error(const Error& error);

/// Converts the `errno` of a failed system call about `path`: UserError if another path, other
/// permissions or another disk help; SystemError for memory, descriptors and disk failures.
Error file_error(const std::string& operation, const std::string& path, const std::string& what,
                 int error, const std::string& fix = "");

std::string encode_error(const Error& error);
Error decode_error(std::string_view text);  ///< throws InternalError for other text

/// Stores the error of one of several processes.
struct Failure {
  std::exception_ptr error;
  int precedence = 0;  ///< the lowest is reported; see Mailboxes::fail
};

std::vector<std::byte> write_failure(const Error& error, int precedence);
Failure read_failure(std::span<const std::byte> bytes);

/// Returns the same error with `place` in front of its own place.
Error located(const Error& error, const std::string& place);

}  // namespace strata

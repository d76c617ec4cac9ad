#include "strata/base/errors.h"

#include <string_view>
#include <utility>

#include "strata/base/error_transfer.h"

namespace strata {
namespace {

// Below the first line of the value, so that grids stay readable.
constexpr std::string_view kIndent = "\n            ";

void append_part(std::string& message, std::string_view label, const std::string& value) {
  if (value.empty()) return;
  message.append("\n  ").append(label);
  for (const char c : value) {
    if (c == '\n') {
      message.append(kIndent);
    } else {
      message.push_back(c);
    }
  }
}

std::string compose(const ErrorText& text) {
  std::string message = "[" + text.operation + "] ";
  if (!text.where.empty()) message += text.where + ": ";
  message += text.what;
  append_part(message, "expected  ", text.expected);
  append_part(message, "got       ", text.got);
  append_part(message, "fix       ", text.fix);
  return message;
}

// __FILE__ may be absolute; the reader wants the place in the repository.
std::string_view path_in_repository(std::string_view file) {
  const std::size_t at = file.rfind("strata/");
  return at == std::string_view::npos ? file : file.substr(at);
}

}  // namespace

Error::Error(ErrorKind kind, ErrorText text)
    : kind_(kind), text_(std::move(text)), message_(compose(text_)) {}

int exit_code(const std::exception& error) {
  switch (to_error(error).kind()) {
    case ErrorKind::kUser:
      return 2;
    case ErrorKind::kSystem:
      return 3;
    case ErrorKind::kInternal:
      break;
  }
  return 4;
}

void internal::check_failed(const char* file, int line, const char* operation,
                            const char* condition, const std::string& values) {
  throw InternalError({.operation = operation,
                       .where = std::string(path_in_repository(file)) + ":" + std::to_string(line),
                       .what = "this must hold and does not: " + std::string(condition),
                       .expected = "",
                       .got = values,
                       .fix = "report this message with the command and the recipe: it is a bug"});
}

}  // namespace strata

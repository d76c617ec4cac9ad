// Whatever the input, a message stays readable: lines that are longer than a reader follows are cut
// here, for all errors. Those who quote the user's input use quote(), which is stricter.
#include "strata/base/errors.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "strata/base/error_transfer.h"
#include "strata/base/quote.h"

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

constexpr std::size_t kLongestLine = 240;
constexpr std::size_t kLongestPictureLine = 1000;  // of grids and tables, and of lists of names

std::string cut_lines(const std::string& text, std::size_t longest) {
  if (text.size() <= longest) return text;
  std::string cut;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (begin > 0) cut += '\n';
    cut += beginning(line, longest);
    if (line.size() > longest) cut += "... (" + std::to_string(line.size()) + " bytes)";
    begin = end + 1;
  }
  return cut;
}

ErrorText readable(ErrorText text) {
  text.where = cut_lines(text.where, kLongestLine);
  text.what = cut_lines(text.what, kLongestLine);
  text.expected = cut_lines(text.expected, kLongestPictureLine);
  const bool picture = text.got.find('\n') != std::string::npos;
  text.got = cut_lines(text.got, picture ? kLongestPictureLine : kLongestLine);
  text.fix = cut_lines(text.fix, kLongestPictureLine);
  return text;
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
    : kind_(kind), text_(readable(std::move(text))), message_(compose(text_)) {}

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

// Messages stay readable whatever the input: this file cuts overlong lines of all errors. Code that
// quotes the user's input calls quote(), which is stricter.
#include "strata/base/errors.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

#include "strata/base/user_text.h"

namespace strata {
namespace {

// Starts in the column of the value's first line, so that grids stay readable.
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
constexpr std::size_t kLongestPictureLine = 1000;  // for grids, tables and lists of names

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

// __FILE__ may be absolute; the message names the path in the repository.
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

void check_failed(const char* file, int line, const char* operation, const char* condition,
                  const std::string& values) {
  throw InternalError({.operation = operation,
                       .where = std::string(path_in_repository(file)) + ":" + std::to_string(line),
                       .what = "this must hold and does not: " + std::string(condition),
                       .expected = "",
                       .got = values,
                       .fix = "report this message with the command and the recipe: it is a bug"});
}

namespace {

constexpr char kEnd = '\0';  // follows the kind and each of the six parts

bool is_of_the_system(int error) {
  switch (error) {
    case EAGAIN:
    case EDQUOT:
    case EFBIG:
    case EIO:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOSPC:
    case ESTALE:
      return true;
    default:
      return false;
  }
}

std::string fix_of(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
      return "check the permissions of the file and of the folders above it";
    case EDQUOT:
    case ENOSPC:
      return "free space on this disk";
    case EFBIG:
      return "raise the limit on the size of files (ulimit -f)";
    case EISDIR:
    case ENOTDIR:
      return "check which part of the path is a file and which a folder";
    case ELOOP:
      return "replace the symbolic link by the file that it should lead to";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    case ENAMETOOLONG:
      return "shorten the path";
    case EROFS:
      return "name a place that can be written to";
    default:
      return "check that the path exists and the disk is sound";
  }
}

Error of_the_system(std::string what, const char* got, std::string fix) {
  return SystemError({.operation = "base.system",
                      .where = "",
                      .what = std::move(what),
                      .expected = "",
                      .got = got,
                      .fix = std::move(fix)});
}

}  // namespace

Error file_error(const std::string& operation, const std::string& path, const std::string& what,
                 int error, const std::string& fix) {
  return {is_of_the_system(error) ? ErrorKind::kSystem : ErrorKind::kUser,
          {.operation = operation,
           .where = path,
           .what = what,
           .expected = "",
           .got = std::strerror(error),
           .fix = fix.empty() ? fix_of(error) : fix}};
}

Error to_error(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return *ours;
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return file_error("base.file_system", file->path1().string(), "the path cannot be used",
                      file->code().value());
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return of_the_system("memory is exhausted", error.what(),
                         "free memory, raise the limit (ulimit -v), or ask for less");
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    const bool thread = system->code() == std::errc::resource_unavailable_try_again;
    return of_the_system(thread ? "a thread cannot be started" : "the system refused a request",
                         error.what(),
                         thread ? "lower mesh.threads or the ranks, or raise the limit (ulimit -u)"
                                : "see what the system says above");
  }
  return InternalError({.operation = "base.unexpected",
                        .where = "",
                        .what = "an unexpected exception",
                        .expected = "",
                        .got = error.what(),
                        .fix = "report this message with the command and the recipe: it is a bug"});
}

std::exception_ptr to_exception(const Error& error) {
  if (error.kind() == ErrorKind::kUser) return std::make_exception_ptr(UserError(error.text()));
  if (error.kind() == ErrorKind::kSystem) return std::make_exception_ptr(SystemError(error.text()));
  return std::make_exception_ptr(InternalError(error.text()));
}

void throw_error(const Error& error) { std::rethrow_exception(to_exception(error)); }

std::string encode_error(const Error& error) {
  const ErrorText& text = error.text();
  std::string encoded = std::to_string(static_cast<int>(error.kind())) + kEnd;
  for (const std::string* part :
       {&text.operation, &text.where, &text.what, &text.expected, &text.got, &text.fix})
    encoded += part->substr(0, part->find(kEnd)) + kEnd;
  return encoded;
}

Error decode_error(std::string_view text) {
  std::array<std::string, 7> parts;
  for (std::string& part : parts) {
    const std::size_t end = text.find(kEnd);
    STRATA_CHECK(end != std::string_view::npos, "base.decode_error");
    part = text.substr(0, end);
    text.remove_prefix(end + 1);
  }
  STRATA_CHECK(text.empty() && parts[0].size() == 1 && parts[0] >= "0" && parts[0] <= "2",
               "base.decode_error");
  return {static_cast<ErrorKind>(parts[0][0] - '0'),
          {.operation = parts[1],
           .where = parts[2],
           .what = parts[3],
           .expected = parts[4],
           .got = parts[5],
           .fix = parts[6]}};
}

// The precedence comes first, before the parts of the error.
std::vector<std::byte> write_failure(const Error& error, int precedence) {
  const std::string text = std::to_string(precedence) + kEnd + encode_error(error);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Failure read_failure(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  Failure failure;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), failure.precedence);
  STRATA_CHECK(error == std::errc() && end != text.data() + text.size() && *end == kEnd,
               "base.read_failure");
  failure.error =
      to_exception(decode_error(text.substr(static_cast<std::size_t>(end - text.data()) + 1)));
  return failure;
}

Error located(const Error& error, const std::string& place) {
  ErrorText text = error.text();
  const bool has_it = place.empty() || text.where == place || text.where.starts_with(place + ", ");
  if (!has_it) text.where = text.where.empty() ? place : place + ", " + text.where;
  return {error.kind(), std::move(text)};
}

}  // namespace strata

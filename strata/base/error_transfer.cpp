#include "strata/base/error_transfer.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

namespace strata {
namespace {

constexpr char kEnd = '\0';  // behind the kind and each of the six parts

bool is_of_the_system(int error) {
  switch (error) {
    case EAGAIN:
    case EDQUOT:
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
                        .what = "an exception that nobody foresaw",
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

// The precedence stands in front of the error, as the first of the parts.
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

std::exception_ptr located(const Error& error, const std::string& place) {
  ErrorText text = error.text();
  const bool has_it = place.empty() || text.where == place || text.where.starts_with(place + ", ");
  if (!has_it) text.where = text.where.empty() ? place : place + ", " + text.where;
  return to_exception(Error(error.kind(), std::move(text)));
}

}  // namespace strata

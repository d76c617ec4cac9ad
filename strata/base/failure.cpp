#include "strata/base/failure.h"

#include <charconv>
#include <cstring>
#include <utility>

namespace strata {
namespace {

std::exception_ptr make_error(ErrorKind kind, ErrorText text) {
  switch (kind) {
    case ErrorKind::kUser:
      return std::make_exception_ptr(UserError(std::move(text)));
    case ErrorKind::kSystem:
      return std::make_exception_ptr(SystemError(std::move(text)));
    case ErrorKind::kInternal:
      break;
  }
  return std::make_exception_ptr(InternalError(std::move(text)));
}

}  // namespace

// Two digits, then the parts with a zero byte after each.
std::vector<std::byte> write_failure(const Error& error, int precedence) {
  const ErrorText& text = error.text();
  std::string flat = std::to_string(static_cast<int>(error.kind())) + '\0';
  flat += std::to_string(precedence) + '\0';
  for (const std::string* part :
       {&text.operation, &text.where, &text.what, &text.expected, &text.got, &text.fix})
    flat += part->c_str() + std::string(1, '\0');
  std::vector<std::byte> bytes(flat.size());
  std::memcpy(bytes.data(), flat.data(), flat.size());
  return bytes;
}

Failure read_failure(std::span<const std::byte> bytes) {
  std::vector<std::string> parts(1);
  for (const std::byte byte : bytes) {
    if (byte == std::byte{0}) {
      parts.emplace_back();
    } else {
      parts.back().push_back(static_cast<char>(byte));
    }
  }
  STRATA_CHECK_EQ(parts.size(), std::size_t{9}, "base.failure");
  return {.error = make_error(static_cast<ErrorKind>(std::stoi(parts[0])), {.operation = parts[2],
                                                                            .where = parts[3],
                                                                            .what = parts[4],
                                                                            .expected = parts[5],
                                                                            .got = parts[6],
                                                                            .fix = parts[7]}),
          .precedence = std::stoi(parts[1])};
}

std::exception_ptr located(const Error& error, const std::string& place) {
  ErrorText text = error.text();
  const bool has_it = place.empty() || text.where == place || text.where.starts_with(place + ", ");
  if (!has_it) text.where = text.where.empty() ? place : place + ", " + text.where;
  return make_error(error.kind(), std::move(text));
}

}  // namespace strata

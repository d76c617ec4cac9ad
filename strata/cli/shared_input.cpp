#include "strata/cli/shared_input.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iostream>
#include <optional>
#include <string_view>

#include "strata/base/errors.h"

namespace strata {
namespace {

// Recipes longer than 1 MiB are refused, so the launcher keeps at most that and one byte.
constexpr std::size_t kLongestText = (std::size_t{1} << 20) + 1;

[[noreturn]] void refuse(const std::string& what, int error) {
  throw SystemError({.operation = "cli.launch",
                     .where = "standard input",
                     .what = what,
                     .expected = "a recipe",
                     .got = std::string(std::strerror(error)),
                     .fix = "write the recipe to a file and name it"});
}

// The descriptor that a word names, if any.
std::optional<int> named_stream(std::string_view word) {
  if (word == "-" || word == "/dev/stdin") return STDIN_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!word.starts_with(folder)) continue;
    word.remove_prefix(folder.size());
    int descriptor = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), descriptor);
    if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
    return descriptor;
  }
  return std::nullopt;
}

bool can_be_read(int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags >= 0 && (flags & O_ACCMODE) != O_WRONLY;
}

std::string beginning_of(int descriptor) {
  std::string text;
  std::array<char, 1 << 16> block;
  while (text.size() < kLongestText) {
    const ::ssize_t count = ::read(descriptor, block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse("it cannot be read", errno);
    if (count == 0) break;
    text.append(block.data(), static_cast<std::size_t>(count));
  }
  return text;
}

// Replaces the descriptor by a file in memory with this text.
void replace(int descriptor, const std::string& text) {
  const int file = ::memfd_create("input", MFD_CLOEXEC);
  if (file < 0) refuse("it cannot be kept for all processes", errno);
  for (std::string_view rest = text; !rest.empty();) {
    const ::ssize_t count = ::write(file, rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse("it cannot be kept for all processes", errno);
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
  ::lseek(file, 0, SEEK_SET);
  if (::dup2(file, descriptor) < 0) refuse("it cannot be kept for all processes", errno);
  ::close(file);
}

bool takes_a_value(const CLI::App& verb, const std::string& word) {
  const CLI::Option* option = word.starts_with("-") ? verb.get_option_no_throw(word) : nullptr;
  return option != nullptr && option->get_items_expected_max() > 0;
}

}  // namespace

SharedInput::SharedInput(const CLI::App& verb, const std::vector<std::string>& command) {
  for (std::size_t i = 1; i < command.size(); ++i) {
    const std::optional<int> stream = named_stream(command[i]);
    if (!stream || takes_a_value(verb, command[i - 1]) || !can_be_read(*stream)) continue;
    if (std::ranges::find(streams_, *stream) != streams_.end()) continue;
    replace(*stream, beginning_of(*stream));
    streams_.push_back(*stream);
  }
}

void SharedInput::give() const {
  for (const int stream : streams_) {
    const std::string path = "/proc/self/fd/" + std::to_string(stream);
    const int own = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (own < 0) continue;
    ::dup2(own, stream);
    ::close(own);
  }
}

void SharedInput::rewind() const {
  for (const int stream : streams_) ::lseek(stream, 0, SEEK_SET);
  std::cin.clear();
}

bool is_stream(const std::string& path) {
  struct stat status{};
  return named_stream(path).has_value() ||
         (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode));
}

}  // namespace strata

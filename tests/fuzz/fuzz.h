/// What the fuzzers share. An input that is refused with a UserError is fine; any other exception,
/// a broken property, a finding of a sanitizer or a slow input ends the fuzzer and is kept as a
/// file.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "strata/base/errors.h"

namespace strata::fuzz {

/// Ends the fuzzer if the property does not hold.
inline void require(bool holds, std::string_view property) {
  if (holds) return;
  std::fprintf(stderr, "broken: %.*s\n", static_cast<int>(property.size()), property.data());
  std::abort();
}

/// Whether the input was accepted.
template <typename Use>
bool accepted(const Use& use) {
  try {
    use();
    return true;
  } catch (const UserError&) {
    return false;
  }
}

/// The text before the first byte 0, and the text after it.
struct TwoTexts {
  explicit TwoTexts(std::string_view input)
      : first(input.substr(0, input.find('\0'))),
        second(first.size() < input.size() ? input.substr(first.size() + 1) : std::string_view()) {}
  std::string_view first, second;
};

/// A file of this process, for code that reads files.
class File {
 public:
  explicit File(const std::string& name)
      : folder_(std::filesystem::temp_directory_path() /
                ("strata_fuzz_" + std::to_string(::getpid()))),
        path_((folder_ / name).string()) {
    std::filesystem::create_directories(folder_);
  }
  ~File() { std::filesystem::remove_all(folder_); }
  void write(std::string_view bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }
  const std::string& path() const { return path_; }

 private:
  std::filesystem::path folder_;
  std::string path_;
};

}  // namespace strata::fuzz

/// Each fuzzer defines it.
void fuzz_input(std::string_view input);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz_input({reinterpret_cast<const char*>(data), size});
  return 0;
}

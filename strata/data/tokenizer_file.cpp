#include "strata/data/tokenizer_file.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "strata/base/errors.h"

namespace strata {
namespace {

// A folder of our own in the system's place for temporary files, gone at the end of the scope.
class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_((std::filesystem::temp_directory_path() / "strata-tokens-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) != nullptr) return;
    throw SystemError({.operation = "data.tokenize",
                       .where = path_,
                       .what = "no temporary folder can be made",
                       .expected = "a folder that can be written to",
                       .got = std::strerror(errno),
                       .fix = "set TMPDIR to one"});
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

TokenFile tokenize_file(const std::string& path, const Tokenizer& tokenizer) {
  const auto file = MappedFile::open(path, "data.open", "set data.train to a text or token file");
  const std::span<const std::byte> bytes = file->bytes();
  const std::vector<std::int64_t> tokens =
      tokenizer.encode({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const TemporaryFolder folder;
  const std::string place = folder.path() + "/text.tokens";
  write_token_file(place, tokens, tokenizer.vocabulary());
  return TokenFile::open(place);
}

}  // namespace strata

/// Reads and writes files of tokens of any size; reads only the requested tokens.
///
/// A token file has this header, little-endian, then the tokens (docs/formats.md):
///     0   8  magic  89 53 54 52 41 54 41 0A  (\x89 STRATA \n)
///     8   4  format version, 1
///     12  4  bytes a token: 1, 2 or 4
///     16  8  vocabulary: every token is smaller
///     24  8  number of tokens
///     32  8  checksum (XXH3-64) of all tokens' bytes
///     40 24  zero
///
/// Any other file is text, and its bytes are its tokens: vocabulary 256, no conversion. A file
/// whose name ends with .tokens must be a token file.
///
/// Threads  const, any thread.
/// Cost     open() reads a token file once, for the checksum; it does not read text.
/// Errors   UserError: missing, empty, truncated (also while it is read), damaged, of a later
///          version, token out of range.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "strata/base/random_access_file.h"
#include "strata/tokenizer/tokenizer.h"

namespace strata {

class TokenFile {
 public:
  static TokenFile open(const std::string& path);

  const std::string& path() const { return file_->path(); }
  std::int64_t size() const { return size_; }  ///< tokens
  std::int64_t vocabulary() const { return vocabulary_; }
  bool is_text() const { return is_text_; }

  /// Copies tokens [first, first + out.size()).
  void read(std::int64_t first, std::span<std::int64_t> out) const;

  /// Throws UserError unless every token is below `vocabulary`; reads the whole file if necessary.
  void check_vocabulary(std::int64_t vocabulary) const;

 private:
  TokenFile() = default;

  template <typename Body>
  void for_each_block(Body body) const;

  std::shared_ptr<const RandomAccessFile> file_;
  std::uint64_t first_byte_ = 0;
  int token_bytes_ = 1;
  std::int64_t size_ = 0;
  std::int64_t vocabulary_ = 256;
  bool is_text_ = true;
};

/// A text's tokens, as an unnamed temporary file: its bytes are freed with the last copy of the
/// object.
///
/// Cost     memory for the text and 8 bytes per token while it is written, then none.
/// Errors   SystemError: no space for temporary files (TMPDIR).
TokenFile tokenize_file(const std::string& path, const Tokenizer& tokenizer);

/// Writes tokens below `vocabulary` in the fewest bytes that hold them. The file appears completely
/// or not at all.
void write_token_file(const std::string& path, std::span<const std::int64_t> tokens,
                      std::int64_t vocabulary);

/// Writes the bytes of a text as tokens (tokenizer `bytes`).
void write_byte_token_file(const std::string& path, std::string_view text);

}  // namespace strata

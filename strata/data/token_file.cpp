#include "strata/data/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "strata/base/checksum.h"
#include "strata/base/durable_file.h"
#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/base/units.h"

namespace strata {
namespace {

static_assert(std::endian::native == std::endian::little, "the formats are little-endian");

constexpr std::array<char, 8> kMagic = {'\x89', 'S', 'T', 'R', 'A', 'T', 'A', '\n'};
constexpr std::uint32_t kVersion = 1;
constexpr std::int64_t kBlockBytes = std::int64_t{1} << 20;
const FileUse kUse{.operation = "data.open",
                   .fix = "name a text or token file in data.train or data.validation"};
const FileUse kTokens{.operation = "data.open", .fix = "write the token file again"};

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t token_bytes = 1;
  std::uint64_t vocabulary = 256;
  std::uint64_t count = 0;
  std::uint64_t checksum = 0;
  std::array<std::uint64_t, 3> reserved = {};
};
static_assert(sizeof(Header) == 64);

// Calls `body` with the tokens' bytes as a span of their type.
template <typename Body>
auto as_tokens(std::span<const std::byte> bytes, int token_bytes, Body body) {
  const auto of_type = [&](auto type) {
    using Token = decltype(type);
    return body(
        std::span(reinterpret_cast<const Token*>(bytes.data()), bytes.size() / sizeof(Token)));
  };
  if (token_bytes == 1) return of_type(std::uint8_t{});
  return token_bytes == 2 ? of_type(std::uint16_t{}) : of_type(std::uint32_t{});
}

void check_header(const RandomAccessFile& file, const Header& header) {
  const std::string& path = file.path();
  if (header.version != kVersion) {
    const FileUse other{.operation = "data.open", .fix = "use the version of strata that wrote it"};
    other.refuse(path, "the token file has another format version", std::to_string(kVersion),
                 std::to_string(header.version));
  }
  const std::uint32_t width = header.token_bytes;
  if (width != 1 && width != 2 && width != 4) {
    kTokens.refuse(path, "the header of the token file is damaged", "1, 2 or 4 bytes a token",
                   std::to_string(width));
  }
  if (header.vocabulary == 0 || header.vocabulary > std::uint64_t{1} << (8 * width)) {
    kTokens.refuse(path, "the header of the token file is damaged",
                   "a vocabulary that fits into " + std::to_string(width) + " bytes a token",
                   std::to_string(header.vocabulary));
  }
  const std::uint64_t payload = file.size() - sizeof(Header);
  if (payload % width != 0 || payload / width != header.count) {
    kTokens.refuse(path,
                   payload / width < header.count ? "the token file is truncated"
                                                  : "the token file has bytes after its last token",
                   std::to_string(header.count) + " tokens",
                   std::to_string(payload) + " bytes at " + std::to_string(width) + " a token");
  }
  if (header.count == 0)
    kTokens.refuse(path, "the token file is empty", "at least one token", "0 tokens");
}

template <typename Element>
void write_tokens(const std::string& path, std::span<const Element> tokens,
                  std::int64_t vocabulary) {
  const std::span<const std::byte> payload = std::as_bytes(tokens);
  const Header header{.token_bytes = sizeof(Element),
                      .vocabulary = static_cast<std::uint64_t>(vocabulary),
                      .count = tokens.size(),
                      .checksum = checksum(payload)};
  const std::string partial = path + ".partial";
  DurableFile file(partial);
  file.write(std::as_bytes(std::span(&header, 1)));
  file.write(payload);
  file.close();
  rename_durably(partial, path);
}

template <typename Element>
void narrow_and_write(const std::string& path, std::span<const std::int64_t> tokens,
                      std::int64_t vocabulary) {
  const std::vector<Element> narrow(tokens.begin(), tokens.end());
  write_tokens<Element>(path, narrow, vocabulary);
}

[[noreturn]] void refuse_token(const std::string& operation, const std::string& path,
                               std::int64_t position, std::int64_t token, std::int64_t vocabulary,
                               const std::string& fix) {
  throw UserError({operation, path, "token out of range",
                   "tokens below " + std::to_string(vocabulary) + ", the vocabulary",
                   std::to_string(token) + " at position " + std::to_string(position), fix});
}

}  // namespace

// Calls body(bytes, index of their first token) for all tokens in order.
template <typename Body>
void TokenFile::for_each_block(Body body) const {
  const std::int64_t tokens = kBlockBytes / token_bytes_;
  std::vector<std::byte> block(static_cast<std::size_t>(std::min(tokens, size_) * token_bytes_));
  for (std::int64_t first = 0; first < size_; first += tokens) {
    const std::int64_t count = std::min(tokens, size_ - first);
    const std::span bytes(block.data(), static_cast<std::size_t>(count * token_bytes_));
    file_->read(first_byte_ + static_cast<std::uint64_t>(first * token_bytes_), bytes);
    body(std::span<const std::byte>(bytes), first);
  }
}

TokenFile TokenFile::open(const std::string& path) {
  TokenFile result;
  result.file_ = RandomAccessFile::open(path, kUse);
  const std::uint64_t size = result.file_->size();
  Header header;
  const std::size_t front = std::min<std::uint64_t>(size, sizeof(header));
  result.file_->read(0, std::as_writable_bytes(std::span(&header, 1)).first(front));
  if (front < kMagic.size() || header.magic != kMagic) {
    if (path.ends_with(".tokens")) {
      const FileUse promised{.operation = "data.open",
                             .fix = "write the token file again, or rename it if it is text"};
      promised.refuse(path, "this is no token file: it has another magic",
                      "89 53 54 52 41 54 41 0A in front", "other bytes");
    }
    result.size_ = static_cast<std::int64_t>(size);
    return result;
  }
  if (size < sizeof(Header)) {
    kTokens.refuse(path, "the token file is truncated", "a header of 64 bytes",
                   format_bytes(static_cast<std::int64_t>(size)));
  }
  check_header(*result.file_, header);
  result.is_text_ = false;
  result.first_byte_ = sizeof(Header);
  result.token_bytes_ = static_cast<int>(header.token_bytes);
  result.size_ = static_cast<std::int64_t>(header.count);
  result.vocabulary_ = static_cast<std::int64_t>(header.vocabulary);
  Checksum found;
  result.for_each_block([&](std::span<const std::byte> bytes, std::int64_t) { found.add(bytes); });
  if (found.value() != header.checksum) {
    kTokens.refuse(path, "the tokens are damaged: their checksum is another",
                   checksum_text(header.checksum), checksum_text(found.value()));
  }
  return result;
}

// Reads the bytes into the end of `out` and widens them from its front: the 8 bytes of a token
// never overwrite bytes that are not yet widened.
void TokenFile::read(std::int64_t first, std::span<std::int64_t> out) const {
  STRATA_CHECK(first >= 0 && first + static_cast<std::int64_t>(out.size()) <= size_, "data.read");
  const std::span<std::byte> bytes =
      std::as_writable_bytes(out).last(out.size() * static_cast<std::size_t>(token_bytes_));
  file_->read(first_byte_ + static_cast<std::uint64_t>(first * token_bytes_), bytes);
  const auto widen = [&](auto token) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::memcpy(&token, bytes.data() + i * sizeof(token), sizeof(token));
      const std::int64_t wide = token;
      std::memcpy(&out[i], &wide, sizeof(wide));
    }
  };
  if (token_bytes_ == 1) return widen(std::uint8_t{});
  return token_bytes_ == 2 ? widen(std::uint16_t{}) : widen(std::uint32_t{});
}

void TokenFile::check_vocabulary(std::int64_t vocabulary) const {
  if (token_bytes_ < 4 && vocabulary >= std::int64_t{1} << (8 * token_bytes_)) return;
  for_each_block([&](std::span<const std::byte> bytes, std::int64_t first) {
    as_tokens(bytes, token_bytes_, [&](auto tokens) {
      const auto bad =
          std::ranges::find_if(tokens, [&](auto token) { return token >= vocabulary; });
      if (bad == tokens.end()) return;
      refuse_token("data.open", path(), first + (bad - tokens.begin()), *bad, vocabulary,
                   is_text_ ? "set model.vocab=256, or remove this byte from the text"
                            : "set model.vocab=" + std::to_string(vocabulary_));
    });
  });
}

TokenFile tokenize_file(const std::string& path, const Tokenizer& tokenizer) {
  const auto file = RandomAccessFile::open(path, kUse);
  std::string text(file->size(), '\0');
  file->read(0, std::as_writable_bytes(std::span(text)));
  const std::vector<std::int64_t> tokens = tokenizer.encode(text);
  const ScratchFolder folder;
  const std::string place = folder.path("text.tokens");
  write_token_file(place, tokens, tokenizer.vocabulary());
  return TokenFile::open(place);
}

void write_token_file(const std::string& path, std::span<const std::int64_t> tokens,
                      std::int64_t vocabulary) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocabulary) continue;
    refuse_token("data.write_token_file", path, static_cast<std::int64_t>(i), tokens[i], vocabulary,
                 "write the file with the vocabulary of the tokenizer that made the tokens");
  }
  if (vocabulary <= std::int64_t{1} << 8) {
    narrow_and_write<std::uint8_t>(path, tokens, vocabulary);
  } else if (vocabulary <= std::int64_t{1} << 16) {
    narrow_and_write<std::uint16_t>(path, tokens, vocabulary);
  } else {
    STRATA_CHECK(vocabulary <= std::int64_t{1} << 32, "data.write_token_file");
    narrow_and_write<std::uint32_t>(path, tokens, vocabulary);
  }
}

void write_byte_token_file(const std::string& path, std::string_view text) {
  write_tokens<std::uint8_t>(
      path, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, 256);
}

}  // namespace strata

/// Splits the lines of CSV, TSV, Criteo's TSV and libsvm into columns, in place.
///
/// CSV is RFC 4180: a quoted column may hold separators, line ends and doubled marks; a mark inside
/// an unquoted one is refused. TSV has no quotation. Lines end with LF or CR LF.
///
/// libsvm's columns are label, qid, features (all pairs index:value unchanged) and one for each
/// index that the options name; these pairs are removed from `features`.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/base/random_access_file.h"
#include "strata/tabular/options.h"
#include "strata/tabular/sample_file.h"

namespace strata {

/// Bytes of a line, without its end; longer ones are refused.
inline constexpr std::size_t kLongestLine = std::size_t{16} << 20;

/// The problem of a line, and its byte offset from 0.
struct LineProblem {
  std::size_t byte = 0;
  std::string what, expected, got, fix;
};

struct LineFormat {
  SampleFormat kind = SampleFormat::kCsv;
  std::vector<std::string> wanted = {};  ///< libsvm: indices with a column of their own

  bool quotes() const { return kind == SampleFormat::kCsv; }

  /// Fields are parts of `line`, in which doubled quotation marks are replaced by single ones.
  /// False if it is malformed.
  bool split(std::span<char> line, std::vector<std::string_view>& fields,
             LineProblem& problem) const;
};

/// Iterates over the non-empty lines of a file. A CSV line may contain line ends inside quotes.
class LineScanner {
 public:
  LineScanner(const RandomAccessFile& file, bool quotes, const FileUse& use);

  /// Returns false at the end.
  bool next();
  std::span<char> line() { return {buffer_.data() + begin_, length_}; }
  std::uint64_t offset() const { return first_ + begin_; }  ///< of the line, in the file
  std::int64_t number() const { return number_; }           ///< from 1

 private:
  bool fill();
  [[noreturn]] void refuse_length(const std::string& got) const;

  const RandomAccessFile& file_;
  const FileUse& use_;
  bool quotes_;
  std::vector<char> buffer_;
  std::uint64_t first_ = 0;  // offset of the buffer's first byte
  std::size_t begin_ = 0, length_ = 0, next_ = 0;
  std::int64_t number_ = 0, next_number_ = 1;
};

/// Whether the pass that finds the lines also checks the labels, numbers, ids and weights.
enum class SampleValues : std::uint8_t { kUnchecked, kChecked };

std::shared_ptr<const SampleFile> open_text_samples(const std::string& path, SampleFormat format,
                                                    const TabularOptions& options,
                                                    SampleValues values);

}  // namespace strata

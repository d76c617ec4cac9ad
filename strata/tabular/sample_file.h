/// Reads any sample of a log as the texts of its columns.
///
/// A text file (CSV, TSV, Criteo's, libsvm) is read once when it is opened: every line is checked,
/// and the position of each sample is stored in 12 bytes; its line is read again on request. A gzip
/// file is unpacked first (unpacked_log.h). Strata's records (record_file.h) have an index of
/// their own. No cache file is written.
///
/// Threads  const, any thread, each with its own SampleText.
/// Errors   UserError with file, line and column: quotation, too many or too few columns, no pair
///          of index and value, a line beyond 16 MiB, no samples, missing columns. Empty lines are
///          ignored.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/tabular/options.h"

namespace strata {

/// One sample of one file. The texts are valid until the object is filled again.
class SampleText {
 public:
  SampleText() = default;
  SampleText(const SampleText&) = delete;
  SampleText& operator=(const SampleText&) = delete;

  std::vector<std::string_view> fields;  ///< by column
  std::vector<char> bytes;               ///< buffer of the reader
  std::int64_t block = -1;               ///< for records: the block in `bytes`
};

/// Names columns and samples in errors.
class SamplePlaces {
 public:
  virtual ~SamplePlaces() = default;

  virtual const std::vector<std::string>& columns() const = 0;
  /// The place for the user: "clicks.tsv:17".
  virtual std::string place(std::int64_t sample) const = 0;
};

class SampleFile : public SamplePlaces {
 public:
  virtual std::int64_t samples() const = 0;
  virtual void read(std::int64_t sample, SampleText& text) const = 0;

  /// Announces the samples that the next reads will be of, in order; call it before each read.
  virtual void prefetch(std::span<const std::int64_t> /*next*/) const {}

  /// The column's index.
  /// Errors  UserError with the nearest name if there is none.
  int column(const std::string& name) const;

 protected:
  virtual std::string path() const = 0;
};

/// Opens the file at `path` in the format of the options.
std::shared_ptr<const SampleFile> open_samples(const std::string& path,
                                               const TabularOptions& options);

/// The format of a file if the options leave it open.
/// Errors  UserError if its name does not tell.
SampleFormat format_of(const std::string& path, SampleFormat requested);

}  // namespace strata

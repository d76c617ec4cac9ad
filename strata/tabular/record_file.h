/// Keeps samples in blocks with checksums, so that any of them is read without an index in memory.
///
/// A sample is the texts of its columns: the same recipe learns the same from it as from the log that
/// it was made of (docs/formats.md has the bytes).
///
/// Cost     a sample: two reads, of the index and of a block of 16 samples; nothing in a row of
///          samples of one block. Memory: the block.
/// Errors   UserError with the file: another magic or version, truncated, a block that is damaged.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/base/durable_file.h"
#include "strata/tabular/sample_file.h"

namespace strata {

std::shared_ptr<const SampleFile> open_records(const std::string& path);

/// Writes one; it appears whole at finish(), or not at all.
class RecordWriter {
 public:
  RecordWriter(std::string path, const std::vector<std::string>& columns);
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  void add(std::span<const std::string_view> fields);
  void finish();

 private:
  void end_block();
  void write(std::string_view bytes);

  std::string path_;
  std::size_t columns_;
  std::string names_;  // as they will be written
  DurableFile file_;
  std::string pending_;        // bytes that aren't written yet
  std::uint64_t written_ = 0;  // and before them
  std::string rows_;           // of the block
  std::vector<std::uint32_t> ends_;
  std::vector<std::uint64_t> index_;
  std::uint64_t samples_ = 0;
  bool finished_ = false;
};

}  // namespace strata

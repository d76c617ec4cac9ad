/// Stores samples in blocks with checksums, so that any sample is read without an index in memory.
///
/// A sample is the texts of its columns: training on it gives the same result as on the original
/// log (docs/formats.md has the bytes).
///
/// Cost     per sample two reads, of the index and of a block of 16 samples; none if the block is
///          kept in memory, or for consecutive samples of one block.
/// Errors   UserError with the file: wrong magic or version, truncated, a damaged block.
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

/// Keeps at most `memory_bytes` of the blocks that it has read.
std::shared_ptr<const SampleFile> open_records(const std::string& path,
                                               std::int64_t memory_bytes = 0);

/// Writes a file, which appears completely at finish(), or not at all.
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
  std::string pending_;        // bytes not yet written
  std::uint64_t written_ = 0;  // bytes written before them
  std::string rows_;           // samples of the block
  std::vector<std::uint32_t> ends_;
  std::vector<std::uint64_t> index_;
  std::uint64_t samples_ = 0;
  bool finished_ = false;
};

}  // namespace strata

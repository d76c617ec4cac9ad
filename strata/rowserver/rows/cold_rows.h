/// Stores rows that do not fit in memory in a folder (RocksDB), by feature and id.
///
/// The rows are temporary: the constructor and the destructor remove them. Snapshots and update
/// logs include them, as they include the rows in memory, so this class never synchronises its
/// files.
///
/// The constructor creates the folder if it does not exist, locks it (folder_lock.h) and writes a
/// mark (kColdMark). It accepts only a folder that is empty or has the mark, and removes only the
/// database in a folder with the mark.
///
/// Threads  get(): any; the rest: one thread.
/// Cost     48 MiB of memory for RocksDB's tables and caches, in addition to the budget of rows.
/// Errors   SystemError: no space, a damaged file. UserError: a folder that cannot be used, that
///          another process uses, or that has files without the mark.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace strata {

inline constexpr const char* kColdMark = "strata-cold-rows";  ///< a file in the folder
inline constexpr const char* kColdDatabase = "database";      ///< RocksDB's folder within it

class ColdRows {
 public:
  explicit ColdRows(const std::string& folder);
  ~ColdRows();
  ColdRows(const ColdRows&) = delete;
  ColdRows& operator=(const ColdRows&) = delete;

  void put(int feature, std::uint64_t id, std::span<const std::byte> row);
  /// Returns whether the row exists.
  bool get(int feature, std::uint64_t id, std::string& row) const;
  void erase(int feature, std::uint64_t id);

  /// Visits the rows of a feature from id `first` on in ascending order, until the visitor returns
  /// false.
  using Visitor = std::function<bool(std::uint64_t id, std::span<const std::byte> row)>;
  void visit(int feature, std::uint64_t first, const Visitor& visitor) const;

 private:
  struct Database;
  std::unique_ptr<Database> database_;
};

}  // namespace strata

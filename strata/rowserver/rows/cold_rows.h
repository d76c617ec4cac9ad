/// Keeps rows that memory has no room for in a folder (RocksDB), by feature and id.
///
/// The rows are scratch: the constructor and the destructor remove them, and snapshots and logs of updates
/// have them, like the rows in memory. So nothing is ever synchronised here.
///
/// The constructor makes the folder where there is none, locks it (folder_lock.h) and puts a mark into it
/// (kColdMark). It takes a folder that is empty or has the mark, and no other: only the database in a folder
/// with the mark is removed.
///
/// Threads  get(): any; the rest: one thread.
/// Cost     48 MiB of memory for tables and caches of RocksDB, beside the budget of rows.
/// Errors   SystemError: no space, a file that was damaged; UserError: a folder that cannot be used, that
///          another process uses, or that has files without the mark.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace strata {

inline constexpr const char* kColdMark = "strata-cold-rows";  ///< a file in the folder
inline constexpr const char* kColdDatabase = "database";      ///< a folder in it, RocksDB's

class ColdRows {
 public:
  explicit ColdRows(const std::string& folder);
  ~ColdRows();
  ColdRows(const ColdRows&) = delete;
  ColdRows& operator=(const ColdRows&) = delete;

  void put(int feature, std::uint64_t id, std::span<const std::byte> row);
  /// Whether it is there.
  bool get(int feature, std::uint64_t id, std::string& row) const;
  void erase(int feature, std::uint64_t id);

  /// Rows of a feature from `first` on in ascending order, until the visitor returns false.
  using Visitor = std::function<bool(std::uint64_t id, std::span<const std::byte> row)>;
  void visit(int feature, std::uint64_t first, const Visitor& visitor) const;

 private:
  struct Database;
  std::unique_ptr<Database> database_;
};

}  // namespace strata

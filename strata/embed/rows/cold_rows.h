/// Keeps rows that memory has no room for in a folder (RocksDB), by feature and id.
///
/// The folder is scratch: it is emptied at the start, and what is in it survives in snapshots and logs
/// of updates, like the rows in memory. So nothing is ever synchronised here.
///
/// Threads  get(): any; the rest: one thread.
/// Cost     48 MiB of memory for tables and caches of RocksDB, beside the budget of rows.
/// Errors   SystemError: no space, a file that was damaged; UserError: a folder that can't be used.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace strata {

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

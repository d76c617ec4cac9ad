#include "strata/rowserver/rows/row_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "strata/base/errors.h"

namespace strata {
namespace {

constexpr std::size_t kPage = 4096;
// Extents of at least this size request huge pages: most of the time of a random read is the walk
// through page tables, and the last huge page wastes a small share.
constexpr std::size_t kLargePage = std::size_t{2} << 20;
constexpr std::size_t kLeastLarge = 16 * kLargePage;

std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

RowMemory::RowMemory(int row_bytes) : row_bytes_(row_bytes) {}

RowMemory::~RowMemory() {
  for (int extent = 0; extent < kExtents; ++extent)
    if (std::byte* begin = extents_[extent].load(std::memory_order_relaxed))
      munmap(begin, extent_bytes(extent));
}

std::size_t RowMemory::extent_bytes(int extent) const {
  return rounded_up((std::size_t{kFirstRows} << extent) * row_bytes_, kPage);
}

std::uint32_t RowMemory::append() {
  if (size_ == kMostRows)
    throw UserError({.operation = "embed.rows",
                     .where = "rows of " + std::to_string(row_bytes_) + " bytes",
                     .what = "a feature has more rows than one table can number",
                     .expected = "at most 2^31 rows a server",
                     .got = "one more",
                     .fix = "use more servers, or a budget of bytes"});
  const std::uint32_t place = size_ + kFirstRows;
  const int extent = 31 - __builtin_clz(place) - kFirstBits;
  if (!extents_[extent].load(std::memory_order_relaxed)) {
    const std::size_t bytes = extent_bytes(extent);
    void* begin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED)
      throw SystemError({.operation = "embed.rows",
                         .where = "extent " + std::to_string(extent),
                         .what = "the system gives no more memory for rows",
                         .expected = std::to_string(bytes) + " bytes",
                         .got = std::strerror(errno),
                         .fix = "give the table a budget of bytes (embedding.memory)"});
    if (bytes >= kLeastLarge) madvise(begin, bytes, MADV_HUGEPAGE);
    extents_[extent].store(static_cast<std::byte*>(begin), std::memory_order_release);
  }
  touched_ = std::max(touched_, size_ + 1);
  return size_++;
}

void RowMemory::pop() { row(--size_).clear(); }

// Readers that still access a removed slot read zeros, which is no row.
void RowMemory::trim() {
  const std::size_t unused = std::size_t{touched_ - size_} * row_bytes_;
  if (unused < std::max(2 * kLargePage, std::size_t{size_} * row_bytes_ / 16)) return;
  for (int extent = 0; extent < kExtents; ++extent) {
    std::byte* const begin = extents_[extent].load(std::memory_order_relaxed);
    if (!begin) break;
    const std::size_t first = (std::size_t{kFirstRows} << extent) - kFirstRows;
    const std::size_t kept = rounded_up(size_ > first ? (size_ - first) * row_bytes_ : 0, kPage);
    const std::size_t all = extent_bytes(extent);
    if (kept < all) madvise(begin + kept, all - kept, MADV_DONTNEED);
  }
  touched_ = size_;
}

std::int64_t RowMemory::bytes() const {
  std::size_t sum = 0;
  for (int extent = 0; extent < kExtents; ++extent) {
    const std::size_t first = (std::size_t{kFirstRows} << extent) - kFirstRows;
    if (touched_ <= first) break;
    const std::size_t all = extent_bytes(extent);
    const std::size_t unit = all >= kLeastLarge ? kLargePage : kPage;
    sum += std::min(all, rounded_up((touched_ - first) * std::size_t(row_bytes_), unit));
  }
  return static_cast<std::int64_t>(sum);
}

}  // namespace strata

/// Holds memory that disks can access directly: whole zeroed pages of the requested size, rounded
/// up to a page.
///
/// Cost    pages take no memory before they are touched; the system may use huge pages.
/// Errors  std::bad_alloc.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <span>
#include <utility>

namespace strata {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    void* const begin =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED) throw std::bad_alloc();
    begin_ = static_cast<std::byte*>(begin);
    ::madvise(begin, bytes, MADV_HUGEPAGE);  // the kernel visits each page of every request
  }
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : begin_(std::exchange(other.begin_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(begin_, other.begin_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~AlignedBuffer() {
    if (begin_ != nullptr) ::munmap(begin_, bytes_);
  }

  std::span<std::byte> bytes() { return {begin_, bytes_}; }
  std::span<const std::byte> bytes() const { return {begin_, bytes_}; }

 private:
  std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace strata

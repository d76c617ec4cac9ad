#include "strata/serve/lower_pages.h"

#include <cstddef>
#include <span>
#include <utility>

#include "strata/base/errors.h"
#include "strata/device/pinned.h"

namespace strata {
namespace {

constexpr const char* kPages = "serve.pages";
constexpr std::int64_t kBlock = 4096;  // of any disk

std::int64_t whole_blocks(std::int64_t bytes) { return (bytes + kBlock - 1) / kBlock * kBlock; }

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

}  // namespace

std::int64_t host_bytes_of_pages(const PageRoom& room, std::int64_t bytes) {
  return (room.host_pages + (room.disk_pages > 0 ? 1 : 0)) * whole_blocks(bytes);
}

std::int64_t disk_bytes_of_pages(const PageRoom& room, std::int64_t bytes) {
  if (room.disk_pages == 0) return 0;
  const std::int64_t page = whole_blocks(bytes);
  const std::int64_t one = ChunkFile::file_bytes(std::vector{page}, /*slots=*/1),
                     two = ChunkFile::file_bytes(std::vector{page, page}, /*slots=*/1);
  return one + (room.disk_pages - 1) * (two - one);
}

LowerPages::LowerPages(const PageRoom& room, std::vector<at::Tensor> tensors, Device device,
                       const LowerPagesOptions& options)
    : room_(room), tensors_(std::move(tensors)) {
  for (const at::Tensor& tensor : tensors_)
    page_bytes_ += static_cast<std::int64_t>(tensor.nbytes()) / room.pages;
  if (page_bytes_ == 0) return;  // no layer of the rank keeps keys
  page_bytes_ = whole_blocks(page_bytes_);
  if (room.host_pages > 0)
    host_ = pinned_bytes(room.host_pages * page_bytes_, device, options.host);
  if (room.disk_pages == 0) return;
  STRATA_CHECK(!options.folder.empty(), kPages);
  staging_ = pinned_bytes(page_bytes_, device, options.host);
  file_ = ChunkFile::create(options.folder,
                            std::vector(static_cast<std::size_t>(room.disk_pages), page_bytes_),
                            options.file);
}

void LowerPages::move(const PageMove& move) {
  const std::int64_t all = room_.pages + room_.host_pages + room_.disk_pages;
  STRATA_CHECK(move.from >= 0 && move.from < all && move.to >= 0 && move.to < all, kPages);
  if (page_bytes_ == 0) return;
  const bool from_device = move.from < room_.pages, to_device = move.to < room_.pages;
  STRATA_CHECK(from_device != to_device || (chunk_of(move.from) < 0 && chunk_of(move.to) >= 0),
               kPages);
  if (to_device)
    return for_parts(move.to, read(move.from),
                     [](const at::Tensor& part, const at::Tensor& bytes) { part.copy_(bytes); });
  at::Tensor bytes = chunk_of(move.to) >= 0 ? staging_ : host_page(move.to);
  if (from_device) {
    for_parts(move.from, bytes,
              [](const at::Tensor& part, const at::Tensor& to) { to.copy_(part); });
  } else {
    bytes = host_page(move.from);
  }
  if (chunk_of(move.to) >= 0) file_->write(chunk_of(move.to), bytes_of(bytes)).wait();
}

// Below 0 for pages that are not on the disk.
int LowerPages::chunk_of(std::int64_t page) const {
  return static_cast<int>(page - room_.pages - room_.host_pages);
}

at::Tensor LowerPages::host_page(std::int64_t page) const {
  return host_.narrow(0, (page - room_.pages) * page_bytes_, page_bytes_);
}

// The bytes of a page on the host, or, read from the disk, in the staging buffer.
at::Tensor LowerPages::read(std::int64_t page) {
  if (chunk_of(page) < 0) return host_page(page);
  file_->read(chunk_of(page), bytes_of(staging_)).wait();
  return staging_;
}

// Calls copy(part, bytes of the part) for the page's part of each tensor.
template <typename Copy>
void LowerPages::for_parts(std::int64_t page, const at::Tensor& bytes, Copy copy) const {
  std::int64_t begin = 0;
  for (const at::Tensor& tensor : tensors_) {
    const at::Tensor part = tensor[page];
    const auto size = static_cast<std::int64_t>(part.nbytes());
    copy(part, bytes.narrow(0, begin, size).view(part.scalar_type()).view(part.sizes()));
    begin += size;
  }
}

}  // namespace strata

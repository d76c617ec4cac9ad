#include "strata/serve/lower_pages.h"

#include <cstddef>
#include <span>
#include <utility>

#include "strata/base/errors.h"
#include "strata/device/pinned.h"

namespace strata {
namespace {

constexpr const char* kPlace = "serve.pages";
constexpr std::int64_t kBlock = 4096;  // of any disk

std::int64_t whole_blocks(std::int64_t bytes) { return (bytes + kBlock - 1) / kBlock * kBlock; }

std::vector<std::int64_t> chunks_of(const PageRoom& room, std::int64_t page_bytes) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(room.disk_pages), page_bytes);
}

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
  STRATA_CHECK(!options.folder.empty(), kPlace);
  staging_ = pinned_bytes(page_bytes_, device, options.host);
  file_ = ChunkFile::create(options.folder, chunks_of(room, page_bytes_), options.file);
}

void LowerPages::move(const PageMove& move) {
  const std::int64_t on_host = room_.pages + room_.host_pages, all = on_host + room_.disk_pages;
  STRATA_CHECK(move.from >= 0 && move.from < all && move.to >= 0 && move.to < all, kPlace);
  if (page_bytes_ == 0) return;
  const bool to_disk = move.to >= on_host, to_device = move.to < room_.pages;
  if (move.from >= room_.pages) {
    const at::Tensor bytes = read(move.from);
    if (to_device) return copy_in(move.to, bytes);
    STRATA_CHECK(to_disk, kPlace);
    return file_->write(static_cast<int>(move.to - on_host), bytes_of(bytes)).wait();
  }
  STRATA_CHECK(!to_device, kPlace);
  const at::Tensor bytes = to_disk ? staging_ : host_page(move.to);
  copy_out(move.from, bytes);
  if (to_disk) file_->write(static_cast<int>(move.to - on_host), bytes_of(bytes)).wait();
}

at::Tensor LowerPages::host_page(std::int64_t page) const {
  return host_.narrow(0, (page - room_.pages) * page_bytes_, page_bytes_);
}

// The bytes of a page on the host, or, read from the disk, in the staging buffer.
at::Tensor LowerPages::read(std::int32_t from) {
  const std::int64_t on_host = room_.pages + room_.host_pages;
  if (from < on_host) return host_page(from);
  file_->read(static_cast<int>(from - on_host), bytes_of(staging_)).wait();
  return staging_;
}

void LowerPages::copy_out(std::int64_t page, const at::Tensor& bytes) const {
  std::int64_t begin = 0;
  for (const at::Tensor& tensor : tensors_) {
    const at::Tensor part = tensor[page];
    const auto size = static_cast<std::int64_t>(part.nbytes());
    bytes.narrow(0, begin, size).view(part.scalar_type()).view(part.sizes()).copy_(part);
    begin += size;
  }
}

void LowerPages::copy_in(std::int64_t page, const at::Tensor& bytes) const {
  std::int64_t begin = 0;
  for (const at::Tensor& tensor : tensors_) {
    const at::Tensor part = tensor[page];
    const auto size = static_cast<std::int64_t>(part.nbytes());
    part.copy_(bytes.narrow(0, begin, size).view(part.scalar_type()).view(part.sizes()));
    begin += size;
  }
}

}  // namespace strata

#include "strata/device/pinned.h"

#include <ATen/ops/from_blob.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/device/account.h"

namespace strata {
namespace {

// Undoes its steps in reverse order, whichever step fails.
class PinnedPages {
 public:
  PinnedPages(std::size_t bytes, Device device, MemoryAccount* account)
      : bytes_(bytes), device_(device), account_(account) {
    if (account_) account_->charge(static_cast<std::int64_t>(bytes_));
    begin_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin_ == MAP_FAILED) {
      const int error = errno;
      give_back();
      throw SystemError({.operation = "device.pinned",
                         .what = "the machine is out of memory",
                         .expected = format_bytes(static_cast<std::int64_t>(bytes_)),
                         .got = std::strerror(error),
                         .fix = "set memory.host to less"});
    }
    try {
      backend_of(device_.kind).register_host_memory(begin_, bytes_);
    } catch (...) {
      give_back();
      throw;
    }
  }
  PinnedPages(const PinnedPages&) = delete;
  PinnedPages& operator=(const PinnedPages&) = delete;
  ~PinnedPages() {
    backend_of(device_.kind).unregister_host_memory(begin_);
    give_back();
  }

  void* begin() const { return begin_; }

 private:
  void give_back() {
    if (begin_ != MAP_FAILED) ::munmap(begin_, bytes_);
    if (account_) account_->credit(static_cast<std::int64_t>(bytes_));
  }

  std::size_t bytes_;
  Device device_;
  MemoryAccount* account_;
  void* begin_ = MAP_FAILED;
};

}  // namespace

at::Tensor pinned_bytes(std::int64_t bytes, Device device, MemoryAccount* account) {
  STRATA_CHECK(bytes > 0, "device.pinned");
  auto pages = std::make_shared<PinnedPages>(static_cast<std::size_t>(bytes), device, account);
  void* const begin = pages->begin();
  return at::from_blob(
      begin, {bytes}, [pages = std::move(pages)](void*) mutable { pages.reset(); },
      host_options(at::kByte));
}

}  // namespace strata

// Stands for NCCL in a build without it: groups that span processes then sum in host memory, which
// needs nothing; to ask for a communicator is a bug.
#include "strata/base/errors.h"
#include "strata/comm/communicator.h"

namespace strata {
namespace {

class NoNccl final : public CommunicatorBackend {
 public:
  bool present() const override { return false; }
  std::uint64_t device_id(Device) const override { refuse(); }
  std::string unique_id() const override { refuse(); }
  std::unique_ptr<Communicator> join(const std::string&, int, int, Device,
                                     std::function<bool()>) const override {
    refuse();
  }

 private:
  [[noreturn]] static void refuse() {
    throw InternalError({.operation = "comm.nccl",
                         .what = "this build has no NCCL",
                         .expected = "sums in host memory",
                         .got = "a communicator",
                         .fix = ""});
  }
};

}  // namespace

const CommunicatorBackend& nccl_backend() {
  static const NoNccl backend;
  return backend;
}

}  // namespace strata

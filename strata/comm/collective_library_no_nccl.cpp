// Replaces NCCL in a build without it: groups that span processes then sum in host memory, and
// requesting a communicator is a bug.
#include "strata/base/errors.h"
#include "strata/comm/collective_library.h"

namespace strata {
namespace {

class NoNccl final : public CollectiveLibrary {
 public:
  bool present() const override { return false; }
  int version() const override { return 0; }
  std::uint64_t device_id(Device) const override { refuse(); }
  std::string unique_id() const override { refuse(); }
  Handle init_rank(const std::string&, int, int, Device) const override { refuse(); }
  LibraryState state(Handle) const override { refuse(); }
  void finalize(Handle) const override { refuse(); }
  void destroy(Handle) const override { refuse(); }
  void abort(Handle) const override { refuse(); }
  void group_start() const override { refuse(); }
  void group_end() const override { refuse(); }
  void send(Handle, const at::Tensor&, int, const Stream&) const override { refuse(); }
  void receive(Handle, const at::Tensor&, int, const Stream&) const override { refuse(); }
  void all_gather(Handle, const at::Tensor&, const at::Tensor&, const Stream&) const override {
    refuse();
  }
  void all_reduce(Handle, const at::Tensor&, const Stream&) const override { refuse(); }
  void reduce_scatter(Handle, const at::Tensor&, const at::Tensor&, const Stream&) const override {
    refuse();
  }
  void reduce(Handle, const at::Tensor&, const at::Tensor&, int, const Stream&) const override {
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

const CollectiveLibrary& nccl_library() {
  static const NoNccl library;
  return library;
}

}  // namespace strata

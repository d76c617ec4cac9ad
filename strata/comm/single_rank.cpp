#include "strata/base/errors.h"
#include "strata/comm/group.h"

namespace strata {
namespace {

class SingleRank final : public Group {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void send(int, const MessageTag&, at::Tensor) override { refuse("send"); }
  at::Tensor receive(int, const MessageTag&) override { refuse("receive"); }
  void barrier() override {}
  void all_reduce(std::span<double>) override {}

 private:
  [[noreturn]] static void refuse(const char* what) {
    throw InternalError({.operation = std::string("comm.") + what,
                         .what = "a group of one has nobody to exchange with"});
  }
};

}  // namespace

std::unique_ptr<Group> single_rank() { return std::make_unique<SingleRank>(); }

}  // namespace strata

/// Reads a tensor that lies in the memory of another process of this machine, which keeps it until
/// this object's end tells that it was read.
///
/// Threads  read() from any; ends before its rank does.
/// Errors   Cancelled when the process is gone or the run has failed.
#pragma once

#include <ATen/core/Tensor.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "strata/comm/frame.h"

namespace strata {

class RemoteTensor {
 public:
  struct Owner {
    pid_t process = 0;
    std::function<void()> give_back;       ///< called once
    std::function<void(bool read)> check;  ///< after each reading; throws if it is worth nothing
  };
  RemoteTensor(const Frame& frame, Owner owner);
  ~RemoteTensor() { owner_.give_back(); }
  RemoteTensor(const RemoteTensor&) = delete;
  RemoteTensor& operator=(const RemoteTensor&) = delete;

  std::int64_t numel() const { return numel_; }
  at::ScalarType dtype() const { return dtype_; }

  /// Elements as they lie in memory.
  void read(std::int64_t first, std::int64_t count, void* to) const;

  /// A copy, charged to this thread's account.
  at::Tensor copy() const;

 private:
  std::vector<std::int64_t> sizes_, strides_;
  at::ScalarType dtype_;
  std::int64_t numel_;
  std::uint64_t memory_;  // address there
  Owner owner_;
};

}  // namespace strata

#include "strata/base/errors.h"
#include "strata/device/simt/simt.h"
#include "strata/device/simt/simt_machine.h"

namespace strata::simt {
namespace {

void check(cudaError_t error) {
  if (error != cudaSuccess)
    throw SystemError({.operation = "device.simt_machine",
                       .what = "the device failed",
                       .got = cudaGetErrorString(error)});
}

}  // namespace

bool has_machine() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}
bool on_gpu() { return true; }

void* allocate(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes));
  return memory;
}

void release(void* memory) { cudaFree(memory); }

void to_machine(void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
}

void from_machine(void* to, const void* from, std::size_t bytes) {
  check(cudaDeviceSynchronize());
  check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}

void in_every_order(const std::function<void()>& body) { body(); }

}  // namespace strata::simt

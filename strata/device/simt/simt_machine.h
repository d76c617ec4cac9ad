/// Accesses the machine that tests of kernels run on: the host if the program is linked with the
/// kernels' host form (simt_machine_on_host.cpp), or a GPU if it is linked with nvcc's
/// (simt_machine.cu).
#pragma once

#include <cstddef>
#include <functional>

namespace strata::simt {

/// False if no device responds: the tests cannot run.
bool has_machine();
bool on_gpu();  ///< whether the program is linked with nvcc's form

void* allocate(std::size_t bytes);  ///< aligned to 256 bytes
void release(void* memory);
void to_machine(void* to, const void* from, std::size_t bytes);
/// Waits for earlier launches.
void from_machine(void* to, const void* from, std::size_t bytes);

/// Runs `body` once for each possible order of threads and blocks: two on the host, one on a GPU.
void in_every_order(const std::function<void()>& body);

}  // namespace strata::simt

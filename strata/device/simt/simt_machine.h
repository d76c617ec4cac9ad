/// Reaches the machine that tests of kernels run on: the host, if the program is linked with the kernels' host
/// form (simt_machine_on_host.cpp), or a GPU, if it is linked with nvcc's (simt_machine.cu).
#pragma once

#include <cstddef>
#include <functional>

namespace strata::simt {

/// False: no device answers, and nothing can be tried.
bool has_machine();
bool on_gpu();  ///< whether it is nvcc's form that the program is linked with

void* allocate(std::size_t bytes);  ///< at a border of 256 bytes
void release(void* memory);
void to_machine(void* to, const void* from, std::size_t bytes);
/// Waits for what was launched before.
void from_machine(void* to, const void* from, std::size_t bytes);

/// Runs `body` once for each order in which threads and blocks can be told to run: two on the host, one on a
/// GPU.
void in_every_order(const std::function<void()>& body);

}  // namespace strata::simt

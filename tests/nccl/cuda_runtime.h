/// Replaces CUDA's header: declares what strata/comm/nccl_library.cpp uses.
#pragma once

using cudaStream_t = struct CUstream_st*;

enum cudaError_t { cudaSuccess, cudaErrorInvalidDevice = 101 };

struct cudaDeviceProp {
  struct {
    char bytes[16];
  } uuid;
};

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaSetDevice(int device);
const char* cudaGetErrorString(cudaError_t error);

#include "strata/python/tensors.h"

#include <ATen/DLConvertor.h>

#include <stdexcept>

namespace strata {
namespace nb = nanobind;
namespace {

constexpr const char* kNew = "dltensor";        // names of DLPack
constexpr const char* kUsed = "used_dltensor";  // the consumer owns the tensor

}  // namespace

at::Tensor tensor_of(const nb::capsule& capsule) {
  auto* const managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), kNew));
  if (!managed) throw nb::python_error();
  at::Tensor tensor = at::fromDLPack(managed);
  PyCapsule_SetName(capsule.ptr(), kUsed);
  return tensor;
}

std::vector<at::Tensor> tensors_of(const std::vector<nb::capsule>& capsules) {
  std::vector<at::Tensor> tensors;
  for (const nb::capsule& capsule : capsules) tensors.push_back(tensor_of(capsule));
  return tensors;
}

nb::capsule capsule_of(const at::Tensor& tensor) {
  const auto free_unused = [](PyObject* capsule) {
    if (!PyCapsule_IsValid(capsule, kNew)) return;
    auto* const managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, kNew));
    managed->deleter(managed);
  };
  return nb::steal<nb::capsule>(PyCapsule_New(at::toDLPack(tensor), kNew, free_unused));
}

}  // namespace strata

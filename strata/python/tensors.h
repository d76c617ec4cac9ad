/// Passes tensors between Python and libtorch by DLPack, so that the module does not link PyTorch's
/// own Python library.
///
/// Memory  shared; both sides keep it alive.
#pragma once

#include <ATen/core/Tensor.h>
#include <nanobind/nanobind.h>

#include <vector>

namespace strata {

/// `capsule`: of torch.utils.dlpack.to_dlpack(); it is used up.
at::Tensor tensor_of(const nanobind::capsule& capsule);
std::vector<at::Tensor> tensors_of(const std::vector<nanobind::capsule>& capsules);

/// For torch.utils.dlpack.from_dlpack().
nanobind::capsule capsule_of(const at::Tensor& tensor);

}  // namespace strata

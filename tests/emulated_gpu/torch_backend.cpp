// CUDA as libtorch sees it, in a libtorch without CUDA: an allocator, a current device, and for each operator
// the CPU's on the same memory. Views and factories are the library's own for any backend.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <map>
#include <vector>

#include "tests/emulated_gpu/memory.h"

namespace strata::emulated {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::CUDA;

c10::Device device_at(int index) { return {kType, static_cast<c10::DeviceIndex>(index)}; }

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device device = device_at(current_device());
    if (bytes == 0) return {nullptr, device};
    void* address = emulated::allocate(current_device(), bytes);
    return {address, address, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    const DeviceWork work;
    default_copy_data(to, from, bytes);
  }
};

Allocator& allocator() {
  static auto& all = *new Allocator;
  return all;
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    set_device(device.index());
    return before;
  }
  c10::Device getDevice() const override { return device_at(current_device()); }
  void setDevice(c10::Device device) const override { set_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    set_device(device.index());
  }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
};

// Host memory that is locked is host memory.
struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    return at::getCPUAllocator()->allocate(bytes);
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

class Hooks final : public at::CUDAHooksInterface {
 public:
  explicit Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  int getNumGPUs() const override { return device_count(); }
  c10::DeviceIndex current_device() const override {
    return static_cast<c10::DeviceIndex>(emulated::current_device());
  }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    static auto& pinned = *new PinnedAllocator;
    return &pinned;
  }
};

// The same memory as the CPU's tensor; what is of no device stays.
at::Tensor on_host(const at::Tensor& x) {
  if (!x.defined() || !x.is_cuda()) return x;
  return at::from_blob(const_cast<void*>(x.unsafeGetTensorImpl()->data()), x.sizes(), x.strides(),
                       x.options().device(at::kCPU));
}

class OnHost {
 public:
  at::Tensor operator()(const at::Tensor& x) {
    const at::Tensor host = on_host(x);
    if (x.defined() && x.is_cuda()) given_.emplace(host.unsafeGetTensorImpl(), x);
    return host;
  }
  c10::IValue operator()(const c10::IValue& value) {
    if (value.isTensor()) return (*this)(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& x : value.toTensorVector()) list.push_back((*this)(x));
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& x : value.toOptionalTensorVector())
        list.push_back(x ? std::optional((*this)(*x)) : std::nullopt);
      return list;
    }
    if (value.isDevice()) return c10::Device(c10::DeviceType::CPU);
    return value;
  }

  /// The argument itself where the operator returns it, else a copy on the device.
  c10::IValue back(const c10::IValue& value) const {
    if (value.isTensor()) return back(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& x : value.toTensorVector()) list.push_back(back(x));
      return list;
    }
    return value;
  }

 private:
  at::Tensor back(const at::Tensor& host) const {
    if (!host.defined()) return host;
    const auto argument = given_.find(host.unsafeGetTensorImpl());
    if (argument != given_.end()) return argument->second;
    TORCH_CHECK(!is_device_memory(host.unsafeGetTensorImpl()->data()),
                "an operator that returns a view has no emulation");
    const at::Tensor x = at::empty_strided(host.sizes(), host.strides(),
                                           host.options().device(device_at(current_device())));
    x.copy_(host);
    return x;
  }

  std::map<const c10::TensorImpl*, at::Tensor> given_;
};

void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::size_t arguments = op.schema().arguments().size();
  OnHost on_host;
  // Keeps what it stands for alive while it is used.
  std::vector<c10::IValue> kept(stack->end() - static_cast<std::ptrdiff_t>(arguments),
                                stack->end());
  for (std::size_t i = 0; i < arguments; ++i)
    (*stack)[stack->size() - arguments + i] = on_host(kept[i]);
  std::vector<c10::IValue> hosts(stack->end() - static_cast<std::ptrdiff_t>(arguments),
                                 stack->end());
  const DeviceWork work;
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  const std::size_t results = op.schema().returns().size();
  for (std::size_t i = stack->size() - results; i < stack->size(); ++i)
    (*stack)[i] = on_host.back((*stack)[i]);
}

at::Tensor& copy_(at::Tensor& to, const at::Tensor& from, bool) {
  const DeviceWork work;
  on_host(to).copy_(on_host(from));
  return to;
}

int index_of(std::optional<c10::Device> device) {
  return device && device->has_index() ? device->index() : current_device();
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(device_at(index_of(device)));
  return at::detail::empty_generic(sizes, &allocator(), c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(device_at(index_of(device)));
  return at::detail::empty_strided_generic(sizes, strides, &allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                           c10::dtype_or_default(dtype));
}

at::Tensor as_strided(const at::Tensor& x, at::IntArrayRef sizes, at::IntArrayRef strides,
                      std::optional<std::int64_t> offset) {
  return at::native::as_strided_tensorimpl(x, sizes, strides, offset);
}
at::Tensor view(const at::Tensor& x, at::IntArrayRef sizes) { return at::native::view(x, sizes); }
at::Tensor reshape_alias(const at::Tensor& x, at::IntArrayRef sizes, at::IntArrayRef strides) {
  return at::native::_reshape_alias(x, sizes, strides);
}
at::Tensor& set_storage(at::Tensor& x, at::Storage source, std::int64_t offset,
                        at::IntArrayRef sizes, at::IntArrayRef strides) {
  return at::native::set_storage_cpu_(x, std::move(source), offset, sizes, strides);
}

[[maybe_unused]] const bool allocates = (c10::SetAllocator(kType, &allocator()), true);

C10_REGISTER_GUARD_IMPL(CUDA, Guard)

}  // namespace
}  // namespace strata::emulated

namespace at {
C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, ::strata::emulated::Hooks)
}  // namespace at

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&strata::emulated::on_cpu>());
}
TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &strata::emulated::empty);
  library.impl("empty_strided", &strata::emulated::empty_strided);
  library.impl("as_strided", &strata::emulated::as_strided);
  library.impl("view", &strata::emulated::view);
  library.impl("_reshape_alias", &strata::emulated::reshape_alias);
  library.impl("set_.source_Storage_storage_offset", &strata::emulated::set_storage);
  library.impl("copy_", &strata::emulated::copy_);
}

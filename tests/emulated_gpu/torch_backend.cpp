// Registers CUDA in a libtorch without CUDA: an allocator, a current device, and for each operator
// the CPU's on the same memory. Views and factories are the library's own for any backend.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "tests/emulated_gpu/memory.h"
#include "tests/emulated_gpu/work.h"

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
    give([=] { std::memcpy(to, from, bytes); });
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

// Locked host memory.
struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    void* memory = ::operator new(std::max<std::size_t>(bytes, 1), std::align_val_t(64));
    lock_host_memory(memory, bytes);
    return {memory, memory, &free, c10::Device(c10::DeviceType::CPU)};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  // As libtorch's: frees only after the device has done the enqueued work. A recording does no work
  // while it is made, and its replays still use the memory.
  static void free(void* memory) {
    if (is_recording()) return;
    give([memory] {
      unlock_host_memory(memory);
      ::operator delete(memory, std::align_val_t(64));
    });
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
  bool isPinnedPtr(const void* address) const override { return is_locked(address); }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    static auto& pinned = *new PinnedAllocator;
    return &pinned;
  }
};

bool is_device(const at::Tensor& x) { return x.defined() && x.is_cuda(); }

// A value with f applied to each of its tensors.
template <typename F>
c10::IValue with_each(const c10::IValue& value, const F& f) {
  if (value.isTensor()) return f(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& x : value.toTensorVector()) list.push_back(f(x));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& x : value.toOptionalTensorVector())
      list.push_back(x ? std::optional(f(*x)) : std::nullopt);
    return list;
  }
  return value;
}

using Values = std::vector<c10::IValue>;

Values perform(const c10::OperatorHandle& op, Values arguments, c10::DispatchKey key) {
  op.redispatchBoxed(c10::DispatchKeySet(key), &arguments);
  return arguments;
}

// The arguments with tensors replaced, and with the device replaced.
template <typename F>
Values arguments_on(const Values& arguments, c10::DeviceType type, const F& f) {
  Values all;
  for (const c10::IValue& value : arguments)
    all.push_back(value.isDevice() ? c10::IValue(c10::Device(type)) : with_each(value, f));
  return all;
}

// The index of the argument that the result aliases; -1: a new tensor.
int argument_of(const c10::FunctionSchema& schema, std::size_t result) {
  const c10::AliasInfo* alias = schema.returns()[result].alias_info();
  if (!alias) return -1;
  TORCH_CHECK(alias->isWrite(),
              "an operator that returns a view has no emulation: ", schema.name());
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* of = schema.arguments()[i].alias_info();
    if (of && of->beforeSets() == alias->beforeSets()) return static_cast<int>(i);
  }
  TORCH_CHECK(false, "an operator's result is no argument: ", schema.name());
}

at::Tensor as_meta(const at::Tensor& x) {
  if (!x.defined()) return x;
  const at::Tensor meta = at::empty_strided(x.sizes(), x.strides(), x.options().device(at::kMeta));
  if (x.unsafeGetTensorImpl()->is_wrapped_number())  // has no dimensions
    meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  return meta;
}

// For operators whose results are numbers, or whose shapes depend on numbers: the host waits.
void on_cpu_at_once(const c10::OperatorHandle& op, torch::jit::Stack* stack,
                    const Values& arguments) {
  synchronize();
  Values results;
  {
    const DeviceWork open;
    results = perform(op, arguments_on(arguments, at::kCPU, on_host), c10::DispatchKey::CPU);
  }
  for (const c10::IValue& result : results)
    stack->push_back(
        with_each(result, [](const at::Tensor& x) { return x.to(device_at(current_device())); }));
}

// Operators resize results that the caller passes without elements. This must happen before the
// device works, because the CPU's operator cannot resize its memory.
void resize_empty_results(const c10::OperatorHandle& op, const Values& arguments) {
  const auto& schema = op.schema().arguments();
  const auto is_empty_result = [&](std::size_t i) {
    return schema[i].is_out() && arguments[i].isTensor() && is_device(arguments[i].toTensor()) &&
           arguments[i].toTensor().numel() == 0;
  };
  std::vector<std::size_t> empty;
  for (std::size_t i = 0; i < schema.size(); ++i)
    if (is_empty_result(i)) empty.push_back(i);
  if (empty.empty()) return;
  const Values metas = arguments_on(arguments, at::kMeta, as_meta);
  perform(op, metas, c10::DispatchKey::Meta);
  for (const std::size_t i : empty) {
    const at::Tensor &x = arguments[i].toTensor(), &meta = metas[i].toTensor();
    const at::Tensor resized =
        at::empty_strided(meta.sizes(), meta.strides(), meta.options().device(x.device()));
    x.unsafeGetTensorImpl()->set_storage_keep_dtype(resized.storage());
    x.unsafeGetTensorImpl()->set_sizes_and_strides(resized.sizes(), resized.strides());
  }
}

void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const Values arguments = torch::jit::pop(*stack, schema.arguments().size());
  const std::size_t count = schema.returns().size();
  bool tensors = true, fresh = false;
  std::vector<int> argument;
  for (std::size_t i = 0; i < count; ++i) {
    tensors = tensors && schema.returns()[i].type()->isSubtypeOf(*c10::TensorType::get());
    argument.push_back(tensors ? argument_of(schema, i) : -1);
    fresh = fresh || argument.back() < 0;
  }
  if (!tensors) return on_cpu_at_once(op, stack, arguments);
  resize_empty_results(op, arguments);
  Values results(count);
  if (fresh) {
    Values shapes;
    try {
      shapes = perform(op, arguments_on(arguments, at::kMeta, as_meta), c10::DispatchKey::Meta);
    } catch (const c10::Error&) {
      return on_cpu_at_once(op, stack, arguments);
    }
    results = arguments_on(shapes, kType, [](const at::Tensor& x) {
      return x.defined() ? at::empty_strided(x.sizes(), x.strides(),
                                             x.options().device(device_at(current_device())))
                         : x;
    });
  }
  std::vector<at::Tensor> places;  // memory of results that are no argument
  for (std::size_t i = 0; i < count; ++i) {
    if (argument[i] >= 0) results[i] = arguments[static_cast<std::size_t>(argument[i])];
    places.push_back(argument[i] < 0 ? on_host(results[i].toTensor()) : at::Tensor());
  }
  give([op, inputs = arguments_on(arguments, at::kCPU, on_host), places = std::move(places)] {
    const Values made = perform(op, inputs, c10::DispatchKey::CPU);
    for (std::size_t i = 0; i < places.size(); ++i)
      if (places[i].defined()) at::Tensor(places[i]).copy_(made[i].toTensor());
  });
  for (c10::IValue& result : results) stack->push_back(std::move(result));
}

at::Tensor& copy_(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  const at::Tensor& host = is_device(to) ? from : to;
  const bool both = is_device(to) && is_device(from);
  const bool is_pinned = !both && is_locked(host.const_data_ptr());
  if (!both && !(non_blocking && is_pinned))
    refuse_while_recording("a copy that the host waits for");
  give([to = on_host(to), from = on_host(from)] { at::Tensor(to).copy_(from); });
  // The driver copies pageable memory first, and waits for a blocking copy.
  if (!both && !(non_blocking && is_pinned)) synchronize();
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

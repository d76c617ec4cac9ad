#include "strata/nn/primitives/primitive_choice.h"

#include <atomic>

#include "strata/base/enum_names.h"

namespace strata {
namespace {

std::atomic<PrimitivesChoice>& choice_of(DeviceKind kind) {
  static std::atomic<PrimitivesChoice> on_cpu{PrimitivesChoice::kAuto};
  static std::atomic<PrimitivesChoice> on_cuda{PrimitivesChoice::kAuto};
  return kind == DeviceKind::kCpu ? on_cpu : on_cuda;
}

}  // namespace

const char* name_of(PrimitivesChoice choice) {
  using enum PrimitivesChoice;
  static constexpr EnumNames<PrimitivesChoice> kNames{
      {kAuto, "auto"}, {kOwn, "own"}, {kAten, "aten"}};
  return kNames[choice];
}

void choose_primitives(DeviceKind kind, PrimitivesChoice choice) { choice_of(kind) = choice; }

PrimitivesChoice chosen_primitives(DeviceKind kind) {
  const PrimitivesChoice choice = choice_of(kind);
  if (choice != PrimitivesChoice::kAuto) return choice;
  return kind == DeviceKind::kCpu ? PrimitivesChoice::kOwn : PrimitivesChoice::kAten;
}

}  // namespace strata

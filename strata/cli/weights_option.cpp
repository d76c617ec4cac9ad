#include "strata/cli/weights_option.h"

#include <string>

#include "strata/base/enum_names.h"
#include "strata/base/error_source.h"
#include "strata/base/user_text.h"
#include "strata/measure/processor.h"

namespace strata {
namespace {

constexpr ErrorSource kWeightsErrors{"cli.weights"};

WeightType type_named(const std::string& option, const std::string& name) {
  if (const auto type = value_named<WeightType>(name)) return *type;
  const std::string nearest = nearest_name(name, all_names<WeightType>());
  throw kWeightsErrors.user(
      option, "no such type of weights", list_names<WeightType>(), name,
      nearest.empty() ? "pass " + option + " int8 or int4" : "did you mean '" + nearest + "'?");
}

}  // namespace

CLI::Option* add_weights_option(CLI::App& verb, WeightType& type, const std::string& option,
                                const std::string& of) {
  return verb
      .add_option_function<std::string>(
          option, [option, &type](const std::string& name) { type = type_named(option, name); },
          "type of the blocks' matrices" + of +
              ": that of the model's precision, or int8 or int4, which round them to a quarter or "
              "a sixth of the bytes of fp32")
      ->type_name("TYPE")
      ->default_str(name_of(type));
}

std::string weights_ending(const std::string& text, WeightType type) {
  return type == WeightType::kPrecision ? "" : text + name_of(type);
}

void require_weights(WeightType type, const Recipe& recipe, const std::string& option) {
  if (type == WeightType::kPrecision) return;
  const std::string is = option + " " + name_of(type);
  if (recipe.device_kind() != DeviceKind::kCpu)
    throw kWeightsErrors.user(is, "only a CPU computes with these weights", "mesh.device=cpu",
                              std::string("mesh.device=") + name_of(recipe.device),
                              "set mesh.device=cpu, or leave out " + option);
  if (recipe.train.precision != at::kFloat)
    throw kWeightsErrors.user(is, "values are computed in fp32 with these weights",
                              "train.precision=fp32", precision_name(recipe.train.precision),
                              "pass --set train.precision=fp32");
  if (recipe.train.primitives == PrimitivesChoice::kAten)
    throw kWeightsErrors.user(is, "only Strata's own kernels compute with these weights",
                              "train.primitives own or auto", "train.primitives=aten",
                              "set train.primitives=own, or leave out " + option);
}

}  // namespace strata

#include "strata/base/yaml_text.h"

namespace strata {
namespace {

YAML::Node flowing(const YAML::Node& node) {
  YAML::Node copy = YAML::Clone(node);
  const auto set_style = [](const auto& self, YAML::Node part) -> void {
    if (!part.IsSequence() && !part.IsMap()) return;
    part.SetStyle(YAML::EmitterStyle::Flow);
    for (auto entry : part) self(self, part.IsMap() ? entry.second : YAML::Node(entry));
  };
  set_style(set_style, copy);
  return copy;
}

}  // namespace

std::string in_one_line(const YAML::Node& node) {
  YAML::Emitter emitter;
  emitter << flowing(node);
  std::string text = emitter.c_str();
  std::erase(text, '\n');  // the emitter breaks long lines
  return text;
}

}  // namespace strata

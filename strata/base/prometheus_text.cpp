#include "strata/base/prometheus_text.h"

namespace strata {

std::string prometheus_label_value(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"' || c == '\n') out += '\\';
    out += c == '\n' ? 'n' : c;
  }
  return out;
}

std::string prometheus_head(const std::string& name, const std::string& type,
                            const std::string& help) {
  return "# HELP " + name + ' ' + help + "\n# TYPE " + name + ' ' + type + '\n';
}

}  // namespace strata

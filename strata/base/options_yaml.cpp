#include <yaml-cpp/yaml.h>

#include <map>
#include <sstream>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/option_value.h"
#include "strata/base/options.h"

namespace strata {
namespace {

// yaml-cpp counts from 0 and gives -1 to nodes that are not written, such as an empty value.
std::string place(const std::string& file, const YAML::Mark& mark) {
  if (mark.is_null()) return file;
  return file + ":" + std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1);
}

std::string in_words(const YAML::Node& node) {
  if (node.IsNull()) return "nothing";
  if (node.IsScalar()) return "'" + node.Scalar() + "'";
  return node.IsMap() ? "a section" : "a list";
}

}  // namespace

/// Walks one recipe and hands every value, with its place, to the set.
class OptionSet::YamlReader {
 public:
  YamlReader(OptionSet& set, std::string file) : set_(set), file_(std::move(file)) {}

  void read(const std::string& text) {
    const std::vector<YAML::Node> documents = parse(text);
    if (documents.size() > 1) {
      refuse(documents[1].Mark(), "a recipe is one YAML document", "one document",
             std::to_string(documents.size()) + " documents", "remove the lines that read '---'");
    }
    if (documents.empty() || documents.front().IsNull()) return;
    if (!documents.front().IsMap()) {
      refuse(documents.front().Mark(), "a recipe is made of sections",
             "the sections " + set_.members(""), in_words(documents.front()),
             "write it like `train: {steps: 10}`");
    }
    read_section(documents.front(), "");
  }

 private:
  std::vector<YAML::Node> parse(const std::string& text) {
    try {
      return YAML::LoadAll(text);
    } catch (const YAML::Exception& error) {
      refuse(error.mark, "malformed YAML: " + error.msg, "", "",
             "check indentation, quotes and brackets up to this place");
    }
  }

  void read_section(const YAML::Node& section, const std::string& prefix) {
    for (const auto& entry : section) {
      if (!entry.first.IsScalar()) {
        refuse(entry.first.Mark(), "a name must be plain text", "", in_words(entry.first),
               "write it like `name: value`");
      }
      const std::string path = prefix + entry.first.Scalar();
      refuse_repetition(entry.first.Mark(), path);
      read_entry(entry.first.Mark(), path, entry.second);
    }
  }

  void read_entry(const YAML::Mark& key, const std::string& path, const YAML::Node& value) {
    // An empty value has no place of its own that a reader would recognise.
    const YAML::Mark mark = value.IsNull() ? key : value.Mark();
    if (set_.is_section(path)) {
      if (value.IsMap()) {
        read_section(value, path + ".");
      } else if (value.IsScalar() && value.Scalar() == "auto" && set_.lookup(path + ".auto")) {
        set_.assign(path + ".auto", "true", place(file_, mark));  // `mesh: auto`
      } else if (!value.IsNull()) {
        set_.refuse_section(path, in_words(value), place(file_, mark));
      }
      return;
    }
    const Field* field = set_.lookup(path);
    if (!field) set_.refuse_unknown(path, value.IsMap(), place(file_, key));
    if (!value.IsScalar()) {
      refuse(mark, "'" + path + "' takes one value", "one value", in_words(value),
             "write it like `" + path.substr(path.rfind('.') + 1) + ": " +
                 write_value(field->target) + "`");
    }
    set_.assign(path, value.Scalar(), place(file_, mark));
  }

  void refuse_repetition(const YAML::Mark& mark, const std::string& path) {
    const auto [first, is_new] = seen_.emplace(path, place(file_, mark));
    if (is_new) return;
    refuse(mark, "'" + path + "' is given twice", "", "first at " + first->second,
           "remove one of the two");
  }

  [[noreturn]] void refuse(const YAML::Mark& mark, std::string what, std::string expected,
                           std::string got, std::string fix) const {
    throw UserError({.operation = "base.options",
                     .where = place(file_, mark),
                     .what = std::move(what),
                     .expected = std::move(expected),
                     .got = std::move(got),
                     .fix = std::move(fix)});
  }

  OptionSet& set_;
  std::string file_;
  std::map<std::string, std::string> seen_;
};

void OptionSet::load_yaml(const std::string& text, const std::string& file) {
  YamlReader(*this, file).read(text);
}

std::string OptionSet::to_yaml() const {
  YAML::Node root(YAML::NodeType::Map);
  for (const Field& field : fields_) {
    YAML::Node node = root;
    std::istringstream names(field.path);
    for (std::string name; std::getline(names, name, '.');) node.reset(node[name]);
    node = write_value(field.target);
  }
  YAML::Emitter emitter;
  emitter << root;
  return std::string(emitter.c_str()) + "\n";
}

}  // namespace strata

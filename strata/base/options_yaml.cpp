// A recipe is read twice: the first reading only counts. yaml-cpp's LoadAll never returns from a
// text such as ",", of which its parser takes nothing and still reports one empty document after
// another; and nothing is built from a text before its documents and its depth are known.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/options.h"
#include "strata/base/user_text.h"

namespace strata {
namespace {

// yaml-cpp counts from 0 and gives -1 to nodes that are not written, such as an empty value.
std::string place(const std::string& file, const YAML::Mark& mark) {
  if (mark.is_null()) return file;
  return file + ":" + std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1);
}

std::string in_words(const YAML::Node& node) {
  if (node.IsNull()) return "nothing";
  if (node.IsScalar()) return quote(node.Scalar());
  return node.IsMap() ? "a section" : "a list";
}

constexpr std::size_t kLongestRecipe = std::size_t{1} << 20;  // bytes
constexpr int kDeepest = 16;

// Where documents begin, and how deeply their lists and sections are nested.
class DocumentCounter final : public YAML::EventHandler {
 public:
  std::vector<YAML::Mark> documents;
  YAML::Mark too_deep = YAML::Mark::null_mark();

  void OnDocumentStart(const YAML::Mark& mark) override { documents.push_back(mark); }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    enter(mark);
  }
  void OnSequenceEnd() override { --depth_; }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    enter(mark);
  }
  void OnMapEnd() override { --depth_; }

 private:
  void enter(const YAML::Mark& mark) {
    if (++depth_ == kDeepest + 1 && too_deep.is_null()) too_deep = mark;
  }
  int depth_ = 0;
};

}  // namespace

/// Walks one recipe and hands every value, with its place, to the set.
class OptionSet::YamlReader {
 public:
  YamlReader(OptionSet& set, std::string file) : set_(set), file_(std::move(file)) {}

  void read(const std::string& text) {
    if (text.size() > kLongestRecipe) {
      refuse(YAML::Mark::null_mark(), "the recipe is too long",
             "at most " + std::to_string(kLongestRecipe) + " bytes", std::to_string(text.size()),
             "name a recipe, such as one of recipes/");
    }
    const YAML::Node document = parse(text);
    if (document.IsNull()) return;
    if (!document.IsMap()) {
      refuse(document.Mark(), "a recipe is made of sections", "the sections " + set_.members(""),
             in_words(document), "write it like `train: {steps: 10}`");
    }
    read_section(document, "");
  }

 private:
  YAML::Node parse(const std::string& text) {
    try {
      check_documents(text);
      return YAML::Load(text);
    } catch (const YAML::Exception& error) {
      refuse(error.mark, "malformed YAML: " + error.msg, "", "",
             "check indentation, quotes and brackets up to this place");
    }
  }

  void check_documents(const std::string& text) {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    DocumentCounter counter;
    while (counter.documents.size() < 2 && parser.HandleNextDocument(counter)) {
    }
    if (!counter.too_deep.is_null()) {
      refuse(counter.too_deep, "lists and sections are nested too deeply",
             "at most " + std::to_string(kDeepest) + " levels", "more",
             "write a recipe of sections and fields");
    }
    if (counter.documents.size() < 2) return;
    const YAML::Mark &first = counter.documents[0], &second = counter.documents[1];
    if (first.pos == second.pos) {
      refuse(second, "malformed YAML: a character that begins nothing", "",
             quote(text.substr(std::min<std::size_t>(second.pos, text.size()), 1)), "remove it");
    }
    refuse(second, "a recipe is one YAML document", "one document", "more",
           "remove the lines that read '---'");
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
    refuse(mark, quote(path) + " is given twice", "", "first at " + first->second,
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
